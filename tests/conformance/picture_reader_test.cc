// SPDX-License-Identifier: Apache-2.0
// Pictures and frames in a session: the pair against the reference that made its golden, memory against the plan, and
// frames that arrive while the session is busy.
#include "engine/picture_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "chat/probe.h"
#include "engine/frame_feed.h"
#include "engine/loaded_encoder.h"
#include "ops/scenes.h"
#include "support/build_paths.h"
#include "support/golden.h"
#include "support/pictures.h"
#include "support/tiny.h"

namespace weir {
namespace {

std::string VisionFile(const std::string& name) { return SourceDir() + "/tests/golden/vision/" + name; }

struct Pair {
  std::unique_ptr<LoadedModel> model;
  std::unique_ptr<LoadedEncoder> encoder;
  std::unique_ptr<Session> session;
  std::unique_ptr<PictureReader> reader;
};

Pair MakePair(const std::string& policy, int32_t pot, const PictureRoom& room, const std::string& device = "cpu") {
  Pair out;
  LoadModelOptions load;
  load.path = VisionFile("llava.gguf");
  load.device = device;
  load.n_threads = 2;
  out.model = std::move(LoadedModel::Load(load)).value();
  out.encoder = std::move(LoadedEncoder::Load(VisionFile("clip.gguf"), *out.model)).value();
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec(policy)).value();
  options.pot_slots = pot;
  options.k_type = options.v_type = DType::kF32;
  EXPECT_TRUE(PrepareProbe(out.model->tokenizer(), nullptr, "", &options).ok());
  options.beside = std::move(PictureReader::Plan(out.encoder->encoder(), room)).value();
  out.session = std::move(Session::Make(out.model->model(), out.model->backend(), options)).value();
  out.reader = std::move(PictureReader::Make(out.encoder->encoder(), *out.session, room)).value();
  return out;
}

PictureRoom Room(int32_t width, int32_t height, int32_t n_waiting = 0) {
  PictureRoom room;
  room.Include(width, height);
  room.n_waiting = n_waiting;
  return room;
}

class PictureReaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
    folder_ = std::filesystem::temp_directory_path() / ("weir_picture_reader_test_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return (folder_ / name).string();
  }
  std::filesystem::path folder_;
};

TEST(Pair, LogitsMatchTheReference) {
  const testing::Golden golden = testing::ReadGolden(VisionFile("llava.golden"));
  const auto tokens = [&](const char* name) {
    const std::vector<float>& data = golden.at(name).data;
    return std::vector<int32_t>(data.begin(), data.end());
  };
  for (const char* device : {"ref", "cpu"}) {
    SCOPED_TRACE(device);
    Pair pair = MakePair("full", 64, Room(8, 8), device);
    std::vector<float> hidden_rows;
    int64_t row = 0;
    const testing::GoldenEntry& want = golden.at("logits");
    const auto expect_row = [&](int64_t at) {
      auto logits = pair.session->Logits();
      ASSERT_TRUE(logits.ok());
      EXPECT_LT(
          testing::RelativeError(logits->data(), want.data.data() + at * want.cols, static_cast<size_t>(want.cols)),
          1e-3)
          << "row " << at;
    };
    for (const int32_t id : tokens("before")) {
      ASSERT_TRUE(pair.session->Append({&id, 1}).ok());
      expect_row(row++);
    }
    ASSERT_TRUE(pair.reader->ReadPrepared(golden.at("pixels").data.data(), {}).ok());
    row += pair.reader->config().n_rows;
    expect_row(row - 1);
    for (const int32_t id : tokens("after")) {
      ASSERT_TRUE(pair.session->Append({&id, 1}).ok());
      expect_row(row++);
    }
    EXPECT_EQ(row, want.rows);
    EXPECT_EQ(pair.session->counters().by[static_cast<size_t>(Modality::kVideo)].seen, pair.reader->config().n_rows);
  }
}

std::vector<float> Pixels(const PictureReader& reader, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> out(static_cast<size_t>(reader.n_prepared()));
  for (float& x : out) x = static_cast<float>(rng.Below(2000)) / 500 - 2;
  return out;
}

// Questions and frames in turn through a pot that forgets, for every policy of the folder that does.
TEST(Pair, EveryPolicyReadsMixedTokens) {
  for (const PolicyInfo* info : AllPolicyInfos()) {
    SCOPED_TRACE(info->name);
    Pair pair = MakePair(info->name, 80, Room(8, 8));
    Pair again = MakePair(info->name, 80, Room(8, 8));
    if (!std::move(pair.session->policy().Make()).value()->Needs().evicts) continue;
    for (int round = 0; round < 6; ++round) {
      for (Pair* p : {&pair, &again}) {
        Session& session = *p->session;
        const std::vector<int32_t> question = {10 + round, 20, 30, 40};
        Session::AppendOptions append;
        append.t_src_ms = 1000 * round;
        ASSERT_TRUE(p->reader->ReadPrepared(Pixels(*p->reader, static_cast<uint64_t>(round)).data(), append).ok());
        ASSERT_TRUE(session.BeginRound(question, 8).ok());
        append.end_of_prompt = true;
        ASSERT_TRUE(session.Append(question, append).ok());
        const SessionCounters c = session.counters();
        EXPECT_LE(session.pot().n_used(), 80 * session.pot().shape().spread);
        EXPECT_EQ(c.by[0].seen, 4 * (round + 1));
        EXPECT_EQ(c.by[2].seen, 25 * (round + 1));
        EXPECT_EQ(c.kept, c.by[0].kept + c.by[2].kept);
        ASSERT_TRUE(session.Logits().ok());
      }
      // One of the two continues from its saved bytes.
      std::vector<uint8_t> saved;
      ASSERT_TRUE(again.session->Save(&saved).ok());
      again.session->Reset();
      ASSERT_TRUE(again.session->Restore(saved).ok());
    }
    EXPECT_EQ(testing::LogitsOf(*pair.session), testing::LogitsOf(*again.session));
    EXPECT_EQ(testing::Held(*pair.session), testing::Held(*again.session));
    EXPECT_GT(pair.session->counters().selections, 0);
  }
}

// What infinipot_v keeps, worked out once more from the keys and values that the pot held.
TEST(Pair, NoveltyIsTakenFromTheStoredKeys) {
  Pair pair = MakePair("infinipot_v:alpha=0.5,text=0.25,recent=0.34,ratio=0.5", 128, Room(8, 8));
  Session& session = *pair.session;
  const std::vector<int32_t> before = {9, 8, 7}, after(25, 12), last = {3};
  ASSERT_TRUE(session.Append(before).ok());
  for (uint64_t frame = 0; frame < 4; ++frame) {
    ASSERT_TRUE(pair.reader->ReadPrepared(Pixels(*pair.reader, frame / 2).data(), {}).ok());
  }
  ASSERT_TRUE(session.Append(after).ok());
  const Pot& pot = session.pot();
  const PotShape& shape = pot.shape();
  ASSERT_EQ(pot.n_used(), 128);
  std::vector<std::vector<int64_t>> expected;
  for (int32_t group = 0; group < shape.n_groups(); ++group) {
    const int32_t layer = group / shape.n_kv_heads, head = group % shape.n_kv_heads;
    const auto vector = [&](const uint8_t* slots, int64_t s) {
      const float* x = reinterpret_cast<const float*>(slots) + s * shape.head_dim;
      return std::vector<double>(x, x + shape.head_dim);
    };
    const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
      return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
    };
    std::set<int64_t> keep;
    for (int64_t s = 127; s > 127 - 16; --s) keep.insert(s);  // a quarter of 64: the newest text
    // 24 of the other 48 by TaR: the last of four frames is recent, all its places are held.
    for (int64_t s = 102; s > 102 - 24; --s) keep.insert(s);
    std::vector<std::pair<double, int64_t>> norms;
    for (int64_t s = 0; s < 128; ++s) {
      const std::vector<double> v = vector(pot.values(layer, head), s);
      if (!keep.contains(s)) norms.emplace_back(-std::sqrt(dot(v, v)), -s);
    }
    std::sort(norms.begin(), norms.end());
    for (size_t i = 0; i < 24; ++i) keep.insert(-norms[i].second);
    expected.emplace_back(keep.begin(), keep.end());
    expected.back().push_back(128);
  }
  ASSERT_TRUE(session.Append(last).ok());
  EXPECT_EQ(testing::Held(session), expected);

  // With more by TaR, older frames follow by novelty: what repeats the recent frame leaves first.
  Pair more = MakePair("infinipot_v:alpha=1,text=0,recent=0.34,ratio=0.5", 128, Room(8, 8));
  ASSERT_TRUE(more.session->Append(before).ok());
  for (uint64_t frame = 0; frame < 4; ++frame) {
    ASSERT_TRUE(more.reader->ReadPrepared(Pixels(*more.reader, frame == 3 ? 1 : frame).data(), {}).ok());
  }
  ASSERT_TRUE(more.session->Append(after).ok());
  ASSERT_TRUE(more.session->Append(last).ok());
  // Layer 0's keys depend on the row alone: frame 1 repeats frame 3, frames 0 and 2 do not.
  for (int32_t head = 0; head < shape.n_kv_heads; ++head) {
    int64_t of_frame[4] = {};
    for (const SlotMeta& m : more.session->pot().meta(head)) {
      if (m.modality == Modality::kVideo) ++of_frame[(m.frame() - 3) / 25];
    }
    EXPECT_EQ(of_frame[3], 25);
    EXPECT_EQ(of_frame[1], 0) << "a frame that is seen again is nothing new";
    EXPECT_EQ(of_frame[0] + of_frame[2], 64 - 25);
  }
}

// The rows of older scenes that weir keeps, worked out once more from the keys that the pot held; a stream that is
// restored to a time before its first picture has no such statistic again.
TEST(Pair, WeirRanksRowsByTheStoredKeys) {
  Pair pair = MakePair("weir:alpha=0,beta=0,sinks=2,recent=0.5,first=0,frame_rows=4,ratio=0.5", 128, Room(8, 8));
  Session& session = *pair.session;
  const std::vector<int32_t> before = {9, 8, 7}, after(25, 12), last = {3};
  ASSERT_TRUE(session.Append(before).ok());
  std::vector<uint8_t> saved;
  ASSERT_TRUE(session.Save(&saved).ok());
  for (uint64_t frame = 0; frame < 4; ++frame) {
    ASSERT_TRUE(pair.reader->ReadPrepared(Pixels(*pair.reader, frame).data(), {}).ok());
  }
  ASSERT_TRUE(session.Append(after).ok());
  const Pot& pot = session.pot();
  const PotShape& shape = pot.shape();
  ASSERT_EQ(pot.n_used(), 128);
  std::vector<std::vector<int64_t>> expected;
  for (int32_t group = 0; group < shape.n_groups(); ++group) {
    const float* keys = reinterpret_cast<const float*>(pot.keys(group / shape.n_kv_heads, group % shape.n_kv_heads));
    std::vector<std::vector<double>> unit;
    std::vector<double> mean(static_cast<size_t>(shape.head_dim));
    for (int64_t s = 0; s < 128; ++s) {
      std::vector<double> k(keys + s * shape.head_dim, keys + (s + 1) * shape.head_dim);
      const double norm = std::sqrt(std::inner_product(k.begin(), k.end(), k.begin(), 0.0));
      for (size_t i = 0; i < k.size(); ++i) mean[i] += k[i] /= norm;
      unit.push_back(std::move(k));
    }
    std::set<int64_t> keep = {0, 1};
    for (int64_t s = 127; s > 127 - 32; --s) keep.insert(s);  // half of 64: the text and 7 of the last frame
    std::vector<int32_t> places(128, kNotInScene);
    for (int32_t s = 3; s < 103; ++s) places[s] = (s - 3) % 25 + ((s - 3) % 25 == 0 ? kBeginsFrame : 0);
    std::vector<float> scene(128);
    ref::Scenes(
        {reinterpret_cast<const uint8_t*>(keys), DType::kF32, 128, shape.head_dim, 0.2f, places.data(), scene.data()});
    std::map<float, std::vector<std::pair<double, int64_t>>, std::greater<>> alike;  // newest scene first
    for (int64_t s = 3; s < 103; ++s) {
      if (scene[s] <= 0 || keep.contains(s)) continue;
      alike[scene[s]].emplace_back(std::inner_product(unit[s].begin(), unit[s].end(), mean.begin(), 0.0), s);
    }
    const size_t room = 64 - keep.size();
    size_t each = 4;
    const auto taken = [&](size_t n) {
      size_t sum = 0;
      for (const auto& [number, rows] : alike) sum += std::min(n, rows.size());
      return sum;
    };
    while (each < 25 && taken(each + 1) <= room) ++each;
    for (auto& [number, rows] : alike) {
      std::sort(rows.begin(), rows.end());
      for (size_t i = 0; i < std::min(each, rows.size()) && keep.size() < 64; ++i) keep.insert(rows[i].second);
    }
    for (int64_t s = 127; keep.size() < 64; --s) keep.insert(s);
    expected.emplace_back(keep.begin(), keep.end());
    expected.back().push_back(128);
  }
  ASSERT_TRUE(session.Append(last).ok());
  EXPECT_EQ(testing::Held(session), expected);

  ASSERT_TRUE(session.Restore(saved).ok());
  const std::vector<int32_t> text(126, 12);
  ASSERT_TRUE(session.Append(text).ok());
  EXPECT_EQ(session.counters().selections, 1);
  std::vector<int64_t> newest = {0, 1};  // of 99, when the last 30 came
  for (int64_t seq = 99 - 62; seq < 129; ++seq) newest.push_back(seq);
  EXPECT_EQ(testing::Held(session), std::vector<std::vector<int64_t>>(expected.size(), newest));
}

TEST(Pair, PartsThatDoNotBelongTogether) {
  LoadModelOptions load;
  load.path = testing::GoldenDir() + "llama.gguf";
  auto other = std::move(LoadedModel::Load(load)).value();
  const auto wrong = LoadedEncoder::Load(VisionFile("clip.gguf"), *other);
  EXPECT_EQ(wrong.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(wrong.status().message().find("48"), std::string::npos) << wrong.status().message();
  EXPECT_EQ(LoadedEncoder::Load(load.path, *other).status().code(), StatusCode::kInvalidArgument);
}

// A video that ends a prompt ends it once, however many frames it has.
TEST_F(PictureReaderTest, AVideoEndsAPromptOnce) {
  const std::string video = Write("v.y4m", testing::Y4mBytes(6, 2));
  Pair pair = MakePair("snapkv:capacity=40,window=4", 128, Room(40, 30));
  FrameOptions frames;
  frames.fps = 1;
  Session::AppendOptions append;
  append.end_of_prompt = true;
  ASSERT_TRUE(pair.reader->ReadVideo(video, frames, append).ok());
  EXPECT_EQ(pair.session->counters().seen, 3 * pair.reader->config().n_rows);
  EXPECT_EQ(pair.session->counters().selections, 1);
}

TEST_F(PictureReaderTest, PicturesAndFramesCarryWhatTheyAre) {
  const std::string picture = Write("a.ppm", testing::PpmBytes(40, 30)),
                    video = Write("v.y4m", testing::Y4mBytes(6, 2));
  Pair pair = MakePair("window", 64, Room(40, 30));
  const int32_t n = pair.reader->config().n_rows;
  const int32_t word = 9;
  ASSERT_TRUE(pair.session->Append({&word, 1}).ok());
  const Status read = pair.reader->ReadPicture(picture, {}, {});
  ASSERT_TRUE(read.ok()) << read.message();
  FrameOptions frames;
  frames.fps = 1;
  Session::AppendOptions append;
  append.t_src_ms = 500;
  std::vector<int64_t> times;
  const auto n_frames =
      pair.reader->ReadVideo(video, frames, append, [&](const Frame& f) { times.push_back(f.t_src_ms); });
  ASSERT_TRUE(n_frames.ok()) << n_frames.status().message();
  EXPECT_EQ(*n_frames, 3);
  EXPECT_EQ(times, (std::vector<int64_t>{0, 1000, 2000}));
  const SessionCounters c = pair.session->counters();
  EXPECT_EQ(c.by[0].seen, 1);
  EXPECT_EQ(c.by[1].seen, n);
  EXPECT_EQ(c.by[2].seen, 3 * n);
  EXPECT_EQ(c.seen, 1 + 4 * n);
  int64_t kept = 0, dropped = 0;
  for (const TokenCounters& by : c.by) {
    EXPECT_EQ(by.seen, by.kept + by.dropped);
    kept += by.kept;
    dropped += by.dropped;
  }
  EXPECT_EQ(kept, c.kept);
  EXPECT_EQ(dropped, c.dropped);
  EXPECT_GT(dropped, 0);
  for (const SlotMeta& slot : pair.session->pot().meta(0)) {
    const int64_t at = slot.seq - 1;
    if (at < 0) continue;
    EXPECT_EQ(slot.modality, at < n ? Modality::kImage : Modality::kVideo);
    EXPECT_EQ(slot.row, at % n);
    EXPECT_EQ(slot.frame(), 1 + at / n * n);
    EXPECT_EQ(slot.t_src_ms, at < n ? 0 : 500 + 1000 * (at / n - 1));
  }
  // A saved session keeps all of it.
  std::vector<uint8_t> saved;
  ASSERT_TRUE(pair.session->Save(&saved).ok());
  pair.session->Reset();
  EXPECT_EQ(pair.session->counters().by[1].seen, 0);
  ASSERT_TRUE(pair.session->Restore(saved).ok());
  EXPECT_EQ(pair.session->counters().by[2].seen, 3 * n);
  EXPECT_EQ(pair.session->pot().meta(0).back().row, n - 1);
}

TEST_F(PictureReaderTest, ThePlanHoldsPicturesAndIsNeverExceeded) {
  for (const auto& [width, height] : {std::pair{40, 30}, {300, 11}, {11, 300}, {5, 5}}) {
    SCOPED_TRACE(std::to_string(width) + " x " + std::to_string(height));
    const std::string picture = Write("p.ppm", testing::PpmBytes(width, height));
    Pair pair = MakePair("window", 64, Room(width, height));
    const Status read = pair.reader->ReadPicture(picture, {}, {});
    ASSERT_TRUE(read.ok()) << read.message();
    // The plan is what was used: no more, and little less.
    const int64_t planned = pair.session->plan().total_bytes, peak = pair.session->ledger().peak_bytes();
    EXPECT_LE(peak, planned);
    EXPECT_GT(peak, planned - (64 << 10));
    EXPECT_EQ(pair.session->ledger().used_bytes() +
                  PictureReader::Plan(pair.encoder->encoder(), Room(width, height)).value()[1].bytes,
              planned);
    // Larger ones are refused before their pixels are allocated, or shrunk if requested.
    const std::string larger = Write("l.ppm", testing::PpmBytes(2 * width, 2 * height));
    EXPECT_EQ(pair.reader->ReadPicture(larger, {}, {}).code(), StatusCode::kUnsupported);
    MediaOptions shrink;
    shrink.max_side = std::max(width, height);
    EXPECT_TRUE(pair.reader->ReadPicture(larger, shrink, {}).ok());
    EXPECT_LE(pair.session->ledger().peak_bytes(), planned);
  }
}

TEST_F(PictureReaderTest, PreprocessingNeverAsksForMoreThanItSays) {
  for (const Fit fit : {Fit::kCrop, Fit::kPad, Fit::kStretch}) {
    for (const auto& [width, height] : {std::pair{1, 1}, {3, 500}, {500, 3}, {64, 64}, {200, 130}, {37, 40}}) {
      ImageTransform transform;
      transform.size = 37;
      transform.fit = fit;
      const std::vector<uint8_t> rgb(static_cast<size_t>(3 * width * height), 77);
      std::vector<float> out(3 * 37 * 37);
      Ledger ledger;
      ASSERT_TRUE(Preprocess({rgb.data(), width, height}, transform, ledger, out.data()).ok());
      const int64_t said = PreprocessBytes(width, height, transform);
      EXPECT_LE(ledger.peak_bytes(), said) << width << " x " << height;
    }
  }
}

TEST_F(PictureReaderTest, FramesArriveWhileNobodyLooks) {
  const std::string video = Write("v.y4m", testing::Y4mBytes(40, 10));
  Pair pair = MakePair("window", 64, Room(32, 16, 4));
  FrameFeed::Options options;
  options.frames.fps = 10;
  auto feed = std::move(FrameFeed::Start(*pair.reader, video, options)).value();
  // Nothing is taken: the file is read to its end all the same, and only the newest frames wait.
  for (int i = 0; i < 600 && feed->counters().arrived < 40; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  FrameFeed::Counters c = feed->counters();
  EXPECT_EQ(c.arrived, 40);
  EXPECT_EQ(c.waiting, 4);
  EXPECT_EQ(c.dropped, 36);
  FrameFeed::Prepared frame;
  int64_t n_taken = 0, last = -1;
  while (feed->Take(&frame, 1000)) {
    EXPECT_GT(frame.t_src_ms, last);
    last = frame.t_src_ms;
    ASSERT_TRUE(pair.reader->ReadPrepared(frame.pixels, {}).ok());
    ++n_taken;
  }
  EXPECT_EQ(last, 3900);
  c = feed->counters();
  EXPECT_EQ(n_taken + c.dropped, c.arrived);
  EXPECT_TRUE(feed->ended());
  EXPECT_TRUE(feed->status().ok()) << feed->status().message();
  EXPECT_LE(pair.session->ledger().peak_bytes(), pair.session->plan().total_bytes);
}

TEST_F(PictureReaderTest, WhatLooksLikeADroppedFrameIsDropped) {
  // Eight frames that differ enough, each five times.
  const std::string once = testing::Y4mBytes(32, 10);
  const size_t head = once.find("FRAME"), n_frame = (once.size() - head) / 32;
  std::string bytes = once.substr(0, head);
  for (size_t i = 0; i < 40; ++i) bytes += once.substr(head + i / 5 * 4 * n_frame, n_frame);
  Pair pair = MakePair("window", 64, Room(32, 16, 3));
  FrameFeed::Options options;
  options.frames.fps = 10;
  options.still.emplace().max_gap_ms = 100'000;
  auto feed = std::move(FrameFeed::Start(*pair.reader, Write("v.y4m", bytes), options)).value();
  for (int i = 0; i < 600 && feed->counters().arrived < 40; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const FrameFeed::Counters c = feed->counters();
  EXPECT_EQ(c.arrived, 40);
  EXPECT_EQ(c.waiting, 3);
  EXPECT_EQ(c.dropped, 25) << "five frames, and four that look like each";
  EXPECT_EQ(c.still, 12);
  FrameFeed::Prepared frame;
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(feed->Take(&frame, 1000));
    EXPECT_EQ(frame.pixels == nullptr, i % 2 == 1) << "a frame, then those that look like it";
    EXPECT_EQ(frame.n_still, i % 2 == 1 ? 4 : 0);
  }
}

TEST_F(PictureReaderTest, AFileThatWaitsLosesNothing) {
  const std::string video = Write("v.y4m", testing::Y4mBytes(25, 5));
  Pair pair = MakePair("window", 64, Room(32, 16, 3));
  FrameFeed::Options options;
  options.frames.fps = 5;
  options.drop = false;
  auto feed = std::move(FrameFeed::Start(*pair.reader, video, options)).value();
  FrameFeed::Prepared frame;
  std::vector<int64_t> times;
  while (!feed->ended()) {
    if (feed->Take(&frame, 1000)) times.push_back(frame.t_src_ms);
  }
  ASSERT_EQ(times.size(), 25u);
  for (size_t i = 0; i < times.size(); ++i) EXPECT_EQ(times[i], static_cast<int64_t>(200 * i));
  EXPECT_EQ(feed->counters().dropped, 0);
  // Ending a feed that is not finished neither hangs nor leaks.
  auto unfinished = std::move(FrameFeed::Start(*pair.reader, video, options));
  EXPECT_EQ(unfinished.status().code(), StatusCode::kOverBudget) << "two queues were not planned";
  feed.reset();
  for (int i = 0; i < 3; ++i) {
    auto again = FrameFeed::Start(*pair.reader, video, options);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_TRUE((*again)->Take(&frame, 5000));
  }
  EXPECT_EQ(FrameFeed::Start(*pair.reader, Write("bad.mp4", "no video"), options).status().code(),
            StatusCode::kCorrupt);
}

}  // namespace
}  // namespace weir
