// SPDX-License-Identifier: Apache-2.0
// Families that read two frames of a video as one, against the reference implementations that made
// tests/golden/vision/*_video.golden (tools/golden/video.py): pixels, rows, token ids, coordinates and logits of a
// video with an odd number of frames; and what becomes of a frame that waits for the next one: at a question, at a
// frame of another size, at a broken one, in a saved session, in a copy, and under every policy.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "chat/session_file.h"
#include "kv/axes.h"
#include "rules/rule_set.h"
#include "support/pair.h"

namespace weir {
namespace {

using testing::Golden;
using testing::GoldenEntry;
using testing::Pair;
using testing::RelativeError;
using testing::VisionDir;

constexpr int32_t kWidth = 50, kHeight = 30, kFrames = 5, kRows = 15, kColumns = 5;

struct Family {
  std::string name, model;
  bool one_video = false;
  std::string encoder() const { return name + "_merger.gguf"; }
};
const Family kFamilies[] = {{"qwen2vl", "qwen2vl.gguf", true},
                            {"qwen25vl", "qwen25vl.gguf", true},
                            {"qwen3vl", "qwen3vl_deepstack.gguf"},
                            {"qwen35", "qwen35_axes.gguf"}};

// Frame i of the golden's video, of any size.
std::vector<uint8_t> FrameOf(int i, int32_t width = kWidth, int32_t height = kHeight) {
  std::vector<uint8_t> out = testing::Picture(static_cast<uint32_t>(width), static_cast<uint32_t>(height));
  for (uint8_t& v : out) v = static_cast<uint8_t>(v + 37 * i);
  return out;
}

Status Show(const Pair& pair, int i, int64_t t_ms, int32_t width = kWidth, int32_t height = kHeight) {
  const std::vector<uint8_t> rgb = FrameOf(i, width, height);
  Session::AppendOptions append;
  append.t_src_ms = t_ms;
  return pair.reader->ReadPixels({rgb.data(), width, height}, Modality::kVideo, append);
}

struct Place {
  int32_t time = 0, line = 0, column = 0;
  bool operator==(const Place&) const = default;
};
std::vector<Place> PlacesIn(const Session& session) {
  const std::span<const SlotMeta> held = session.pot().meta(0);
  const auto n = static_cast<int64_t>(held.size());
  std::vector<int32_t> pos(held.size() * 4);
  HeldPositions(held, &pos[held.size() * 3], pos.data(), n);
  std::vector<Place> out;
  for (int64_t i = 0; i < n; ++i) out.push_back({pos[i], pos[n + i], pos[2 * n + i]});
  return out;
}

int64_t SeenOf(const Pair& pair, Modality modality) {
  return pair.session->counters().by[static_cast<size_t>(modality)].seen;
}

class VideoPairs : public ::testing::TestWithParam<Family> {
 protected:
  void SetUp() override { golden_ = testing::ReadGolden(VisionDir() + GetParam().name + "_video.golden"); }
  static Pair PairOf(const std::string& policy = "full", int32_t pot = 256, const std::string& device = "cpu",
                     DType kv = DType::kF32) {
    return {GetParam().model, GetParam().encoder(), {policy, pot, device, kv}};
  }
  Golden golden_;
};

TEST_P(VideoPairs, FramesAreTheProcessors) {
  const Pair pair = PairOf();
  const ImageTransform& transform = pair.reader->config().transform;
  std::vector<float> out(static_cast<size_t>(pair.reader->n_prepared()));
  for (int i = 0; i < kFrames; ++i) {
    const GoldenEntry& want = golden_.at("frame." + std::to_string(i));
    const std::vector<uint8_t> rgb = FrameOf(i);
    ASSERT_TRUE(pair.reader->Prepare({rgb.data(), kWidth, kHeight}, out.data()).ok());
    ASSERT_EQ(InputSize(out.data(), transform).width, want.cols);
    ASSERT_EQ(3 * InputSize(out.data(), transform).height, want.rows);
    testing::ExpectSamePixels(out.data(), want, transform, want.data.size() / 3);
  }
}

TEST_P(VideoPairs, RowsMatchTheReference) {
  const GoldenEntry& want = golden_.at("rows");
  for (const bool reference : {true, false}) {
    testing::TinyEncoder tiny(GetParam().encoder(), reference ? MakeRefBackend() : MakeCpuBackend(2));
    ASSERT_NE(tiny.encoder, nullptr);
    const ImageTransform& transform = tiny.encoder->config().transform;
    auto images = std::move(ImageEncoder::Make(*tiny.encoder, tiny.ledger)).value();
    std::vector<float> got;
    for (int i = 0; i < kFrames; i += 2) {
      const std::vector<float> first = testing::InputOf(golden_.at("frame." + std::to_string(i)), transform);
      std::vector<float> second;
      if (i + 1 < kFrames) second = testing::InputOf(golden_.at("frame." + std::to_string(i + 1)), transform);
      const std::span<float> rows = images->EncodePair(first.data(), second.empty() ? nullptr : second.data());
      got.insert(got.end(), rows.begin(), rows.end());
    }
    ASSERT_EQ(got.size(), want.data.size());
    EXPECT_LT(RelativeError(got.data(), want.data.data(), got.size()), 1e-4);
  }
}

// A frame that is both of its pair is what a picture always was, to the bit.
TEST_P(VideoPairs, AFrameWithoutPartnerIsAPicture) {
  testing::TinyEncoder tiny(GetParam().encoder(), MakeCpuBackend(2));
  ASSERT_NE(tiny.encoder, nullptr);
  auto images = std::move(ImageEncoder::Make(*tiny.encoder, tiny.ledger)).value();
  const std::vector<float> frame = testing::InputOf(golden_.at("frame.1"), tiny.encoder->config().transform);
  const auto copy = [](std::span<const float> rows) { return std::vector<float>(rows.begin(), rows.end()); };
  const std::vector<float> picture = copy(images->EncodePixels(frame.data()));
  EXPECT_EQ(copy(images->EncodePair(frame.data(), nullptr)), picture);
  EXPECT_EQ(copy(images->EncodePair(frame.data(), frame.data())), picture);
}

// Token ids and coordinates are the processor's, logits the model's; under both rules for positions, in chunks that cut
// through pairs.
TEST_P(VideoPairs, AVideoIsReadAsTheFamilyReadsIt) {
  const GoldenEntry &ids = golden_.at("ids"), &want = golden_.at("logits"), &pos = golden_.at("pos");
  const auto n_before = static_cast<int64_t>(golden_.at("before").data[0]);
  for (const char* policy : {"full", "streaming_llm", "h2o"}) {
    for (const char* device : {"ref", "cpu"}) {
      for (const int32_t pot : {256, 128}) {
        SCOPED_TRACE(std::string(policy) + " on " + device + ", pot " + std::to_string(pot));
        const Pair pair = PairOf(policy, pot, device);
        int64_t n_seen = 0;
        const auto check = [&] {
          if (pair.session->n_seen() == n_seen) return;
          n_seen = pair.session->n_seen();
          ASSERT_LE(n_seen, want.rows);
          const std::vector<float> logits = testing::LogitsOf(*pair.session);
          EXPECT_LT(RelativeError(logits.data(), &want.data[(n_seen - 1) * want.cols], logits.size()), 1e-4)
              << "row " << n_seen - 1;
        };
        for (int64_t i = 0; i < n_before; ++i) pair.Say({static_cast<int32_t>(ids.data[i])});
        for (int i = 0; i < kFrames; ++i) {
          ASSERT_TRUE(Show(pair, i, 500 * i).ok());
          check();
        }
        ASSERT_TRUE(pair.reader->Recall({}).ok());
        check();
        while (pair.session->n_seen() < ids.rows) {
          pair.Say({static_cast<int32_t>(ids.data[pair.session->n_seen()])});
          check();
        }
        const std::span<const SlotMeta> held = pair.session->pot().meta(0);
        ASSERT_EQ(std::ssize(held), ids.rows);
        for (size_t i = 0; i < held.size(); ++i) {
          EXPECT_EQ(std::max(held[i].token_id, -1), ids.data[i]) << "token " << i;
        }
        const std::vector<Place> places = PlacesIn(*pair.session);
        for (size_t i = 0; i < places.size(); ++i) {
          EXPECT_EQ(places[i].time, pos.data[i]) << i;
          EXPECT_EQ(places[i].line, pos.data[places.size() + i]) << i;
          EXPECT_EQ(places[i].column, pos.data[2 * places.size() + i]) << i;
        }
        EXPECT_EQ(SeenOf(pair, Modality::kVideo), 3 * kRows);
        EXPECT_LE(pair.session->ledger().peak_bytes(), pair.session->plan().total_bytes);
      }
    }
  }
}

// The rows of a pair have the time of its newer frame.
TEST_P(VideoPairs, APairIsOneFrameOfTheStream) {
  const Pair pair = PairOf();
  for (int i = 0; i < kFrames; ++i) {
    ASSERT_TRUE(Show(pair, i, 500 * i).ok());
    EXPECT_EQ(SeenOf(pair, Modality::kVideo), (i + 1) / 2 * kRows);
    EXPECT_EQ(pair.reader->frames().fresh(), i % 2 == 0 || GetParam().one_video);
  }
  ASSERT_TRUE(pair.reader->Recall({}).ok());
  ASSERT_TRUE(pair.reader->Recall({}).ok()) << "once is enough";
  EXPECT_FALSE(pair.reader->frames().fresh());
  int n_rows = 0;
  int64_t frame = -1;
  std::vector<int64_t> times;
  for (const SlotMeta& slot : pair.session->pot().meta(0)) {
    if (slot.modality == Modality::kText) continue;
    EXPECT_EQ(ColumnsOf(slot), kColumns);
    EXPECT_EQ(slot.row, n_rows++ % kRows);
    if (slot.frame() != std::exchange(frame, slot.frame())) times.push_back(slot.t_src_ms);
    EXPECT_EQ(slot.t_src_ms, times.back());
  }
  EXPECT_EQ(times, (std::vector<int64_t>{500, 1500, 2000}));
}

TEST_P(VideoPairs, AQuestionDoesNotWaitForTheNextFrame) {
  const Pair asked = PairOf();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Show(asked, i, 500 * i).ok());
  ASSERT_TRUE(asked.reader->Recall({}).ok());
  EXPECT_EQ(SeenOf(asked, Modality::kVideo), 2 * kRows);
  asked.Say({20, 21});
  // What comes after it is another video, whose first pair is not shifted.
  for (int i = 3; i < 5; ++i) ASSERT_TRUE(Show(asked, i, 500 * i).ok());
  EXPECT_EQ(SeenOf(asked, Modality::kVideo), 3 * kRows);
  ASSERT_TRUE(asked.reader->Recall({}).ok());
  EXPECT_EQ(SeenOf(asked, Modality::kVideo), 3 * kRows);
  // A picture in between, and nothing else.
  const Pair seen = PairOf();
  ASSERT_TRUE(Show(seen, 0, 0).ok());
  seen.Show(40, 30);
  EXPECT_EQ(SeenOf(seen, Modality::kVideo), kRows);
  const std::span<const SlotMeta> held = seen.session->pot().meta(0);
  bool picture = false;
  for (const SlotMeta& slot : held) {
    picture = picture || slot.modality == Modality::kImage;
    EXPECT_FALSE(picture && slot.modality == Modality::kVideo) << "the frame came first";
  }
  // A frame that looks like the next ones does not end its video.
  const Pair still = PairOf();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Show(still, i, 500 * i).ok());
  ASSERT_TRUE(still.reader->Settle({}).ok());
  ASSERT_TRUE(still.reader->Settle({}).ok());
  EXPECT_EQ(SeenOf(still, Modality::kVideo), 2 * kRows);
  EXPECT_EQ(still.reader->frames().fresh(), GetParam().one_video);
}

// Whoever reads words between two frames without a word to the store: the video ends there.
TEST_P(VideoPairs, WordsWithoutNoticeEndAVideo) {
  const Pair pair = PairOf();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Show(pair, i, 500 * i).ok());
  pair.Say({20, 21});
  for (int i = 2; i < 4; ++i) ASSERT_TRUE(Show(pair, i, 500 * i).ok());
  for (const SlotMeta& slot : pair.session->pot().meta(0)) {
    EXPECT_EQ(StepsOf(slot), -1);
  }
  ASSERT_TRUE(pair.reader->Recall({}).ok());
}

TEST_P(VideoPairs, FramesOfAnotherSizeMakeNoPair) {
  const Pair pair = PairOf();
  ASSERT_TRUE(Show(pair, 0, 0).ok());
  ASSERT_TRUE(Show(pair, 1, 500, 40, 40).ok());
  EXPECT_EQ(SeenOf(pair, Modality::kVideo), kRows) << "the first one alone";
  ASSERT_TRUE(Show(pair, 2, 1000, 40, 40).ok());
  EXPECT_EQ(SeenOf(pair, Modality::kVideo), kRows + 16);
  ASSERT_TRUE(Show(pair, 3, 1500).ok());
  ASSERT_TRUE(Show(pair, 4, 2000).ok());
  ASSERT_TRUE(pair.reader->Recall({}).ok());
  EXPECT_EQ(SeenOf(pair, Modality::kVideo), 2 * kRows + 16);
  for (const SlotMeta& slot : pair.session->pot().meta(0)) {
    EXPECT_EQ(StepsOf(slot), -1) << "each size is a video of its own";
  }
  // As many marks around the videos as there are videos.
  const PictureWords& words = pair.reader->config().words;
  for (const int32_t word : {words.open, words.close}) {
    const int32_t id = words.tokens[static_cast<size_t>(word)].front();
    int n = 0;
    for (const SlotMeta& slot : pair.session->pot().meta(0)) n += slot.token_id == id;
    EXPECT_EQ(n, 3);
  }
}

TEST_P(VideoPairs, ABrokenSecondFrameChangesNothing) {
  const Pair pair = PairOf(), plain = PairOf();
  const std::vector<uint8_t> rgb(600, 7);
  ASSERT_TRUE(Show(pair, 0, 0).ok());
  EXPECT_EQ(pair.reader->ReadPixels({nullptr, 0, 0}, Modality::kVideo, {}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(pair.reader->ReadPixels({rgb.data(), 200, 1}, Modality::kVideo, {}).code(), StatusCode::kUnsupported);
  EXPECT_EQ(pair.session->n_seen(), 0);
  ASSERT_TRUE(Show(pair, 1, 500).ok());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Show(plain, i, 500 * i).ok());
  EXPECT_EQ(testing::LogitsOf(*pair.session), testing::LogitsOf(*plain.session));
}

TEST_P(VideoPairs, ItsMemoryIsInThePlan) {
  const Pair pair = PairOf();
  PictureRoom room;
  room.Include(100, 100);
  const auto plan = PictureReader::Plan(pair.encoder->encoder(), room);
  ASSERT_TRUE(plan.ok());
  int64_t planned = 0;
  for (const PlanItem& item : *plan) {
    if (item.what.find("waits for the next") != std::string::npos) planned += item.bytes;
  }
  EXPECT_EQ(planned, PageRound(pair.reader->n_prepared() * 4));
  EXPECT_EQ(CheckFramesForRules(pair.reader->frames()).code(), StatusCode::kOk);
}

std::vector<uint8_t> Saved(const Pair& pair) {
  std::vector<uint8_t> out;
  VectorSink sink(&out);
  EXPECT_TRUE(SaveState(*pair.session, &pair.reader->frames(), sink).ok());
  return out;
}

// At any moment: what is restored or copied reads what the original reads of all frames to come.
TEST_P(VideoPairs, AFrameThatWaitsIsSavedAndCopied) {
  for (int n = 0; n <= 4; ++n) {
    SCOPED_TRACE(n);
    const Pair first = PairOf("streaming_llm"), second = PairOf("streaming_llm"), third = PairOf("streaming_llm");
    const auto encoder = GgufFile::Open(VisionDir() + GetParam().encoder());
    ASSERT_TRUE(encoder.ok());
    first.Say({20, 21});
    for (int i = 0; i < n; ++i) ASSERT_TRUE(Show(first, i, 500 * i).ok());
    ASSERT_TRUE(Show(second, 3, 100).ok()) << "whatever it held is gone";
    SessionNote note = SessionNote::Of(*first.session, OnOverflow::kEvict, "", "");
    note.Describe(first.reader->frames(), **encoder);
    EXPECT_EQ(note.frames.has_value(), n % 2 == 1 || (n > 0 && GetParam().one_video));
    const std::vector<uint8_t> saved = Saved(first);
    EXPECT_EQ(std::ssize(saved), StateBytes(*first.session, &first.reader->frames()));
    SpanSource source(saved);
    const Status restored = RestoreState(note, source, encoder->get(), second.session.get(), &second.reader->frames());
    ASSERT_TRUE(restored.ok()) << restored.message();
    std::vector<uint8_t> stream;
    ASSERT_TRUE(first.session->Save(&stream).ok());
    ASSERT_TRUE(third.session->Restore(stream).ok());
    third.reader->frames().CopyFrom(first.reader->frames());
    std::vector<std::vector<float>> said;
    for (const Pair* pair : {&first, &second, &third}) {
      for (int i = n; i < 6; ++i) ASSERT_TRUE(Show(*pair, i, 500 * i).ok());
      ASSERT_TRUE(pair->reader->Recall({}).ok());
      pair->Say({22});
      said.push_back(testing::LogitsOf(*pair->session));
      EXPECT_EQ(SeenOf(*pair, Modality::kVideo), 3 * kRows);
    }
    EXPECT_EQ(said[1], said[0]);
    EXPECT_EQ(said[2], said[0]);
    EXPECT_EQ(Saved(second), Saved(first));
  }
}

TEST_P(VideoPairs, BytesOfNoFrameAreRefused) {
  const Pair pair = PairOf("streaming_llm");
  FrameStore& store = pair.reader->frames();
  EXPECT_EQ(store.state_bytes(), 0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Show(pair, i, 500 * i).ok());
  std::vector<uint8_t> good;
  VectorSink sink(&good);
  ASSERT_TRUE(store.Save(sink).ok());
  EXPECT_EQ(std::ssize(good), store.state_bytes());
  EXPECT_LT(std::ssize(good), kWidth * kHeight * 3 * 4 + 256) << "as large as the frame";
  const auto restore = [&](std::span<const uint8_t> bytes) {
    SpanSource check(bytes), source(bytes);
    const Status checked = store.Check(check), restored = store.Restore(source);
    EXPECT_EQ(checked.code(), restored.code());
    return restored;
  };
  for (size_t n = 1; n < good.size(); n += n < 160 ? 1 : good.size() / 17) {
    EXPECT_EQ(restore(std::span(good).first(n)).code(), StatusCode::kInvalidArgument) << n << " bytes";
    EXPECT_EQ(store.state_bytes(), 0) << "nothing is kept of half of it";
  }
  std::vector<uint8_t> more = good;
  more.push_back(0);
  EXPECT_EQ(restore(more).code(), StatusCode::kInvalidArgument);
  std::vector<uint8_t> no_number = good;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(&no_number[good.size() - 4], &nan, sizeof(nan));
  EXPECT_EQ(restore(no_number).code(), StatusCode::kInvalidArgument);
  // Eight bytes each: times, then counts.
  for (size_t at = 0; at < 7; ++at) {
    SCOPED_TRACE(at);
    std::vector<uint8_t> bad = good;
    const int64_t far = int64_t{1} << 62;
    for (const int64_t value : {far, -far}) {
      std::memcpy(&bad[8 * at], &value, sizeof(value));
      EXPECT_EQ(restore(bad).code(), StatusCode::kInvalidArgument) << value;
    }
  }
  // Any byte may be changed: the state is refused, or the stream continues with it.
  Rng rng(7);
  for (int i = 0; i < 300; ++i) {
    std::vector<uint8_t> bad = good;
    bad[static_cast<size_t>(rng.Below(i < 200 ? 128 : bad.size()))] ^= static_cast<uint8_t>(1 + rng.Below(255));
    const Status status = restore(bad);
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument);
    (void)Show(pair, i % kFrames, 5000 + 500 * i);
    (void)pair.reader->Recall({});
  }
  ASSERT_TRUE(restore(good).ok());
  EXPECT_TRUE(store.fresh());
  EXPECT_TRUE(restore({}).ok());
  EXPECT_FALSE(store.fresh());
}

// A pot of 48 slots under every policy: never exceeded, coordinates within it, the same bytes after a restore, whether
// a frame waits or not.
TEST_P(VideoPairs, AStreamOfFramesUnderEveryPolicy) {
  const auto encoder = GgufFile::Open(VisionDir() + GetParam().encoder());
  ASSERT_TRUE(encoder.ok());
  for (const std::string& policy : testing::EvictingPolicies()) {
    SCOPED_TRACE(policy);
    const Pair pair = PairOf(policy, 48), twin = PairOf(policy, 48);
    const auto walk = [&](const Pair& p, int from, int to) {
      for (int i = from; i < to; ++i) {
        ASSERT_TRUE(Show(p, i, 700 * i).ok());
        if (i % 5 == 4) {
          ASSERT_TRUE(p.reader->Recall({}).ok());
          p.Say({10 + i, 11 + 2 * i, 12 + 3 * i});
        }
        const PotShape& shape = p.session->pot().shape();
        for (int32_t group = 0; group < shape.n_groups(); ++group) {
          const std::span<const SlotMeta> held = p.session->pot().meta(group);
          std::vector<int32_t> pos(held.size() * 4);
          HeldPositions(held, pos.data() + held.size() * 3, pos.data(), std::ssize(held));
          for (size_t k = 0; k < 3 * held.size(); ++k) ASSERT_LT(pos[k], std::ssize(held));
        }
      }
    };
    walk(pair, 0, 13);
    EXPECT_TRUE(pair.reader->frames().fresh()) << "one waits";
    SessionNote note = SessionNote::Of(*pair.session, OnOverflow::kEvict, "", "");
    note.Describe(pair.reader->frames(), **encoder);
    const std::vector<uint8_t> saved = Saved(pair);
    SpanSource source(saved);
    ASSERT_TRUE(RestoreState(note, source, encoder->get(), twin.session.get(), &twin.reader->frames()).ok());
    walk(pair, 13, 18);
    walk(twin, 13, 18);
    EXPECT_EQ(testing::LogitsOf(*pair.session), testing::LogitsOf(*twin.session));
    for (const float x : testing::LogitsOf(*pair.session)) ASSERT_TRUE(std::isfinite(x));
    EXPECT_GT(pair.session->counters().dropped, 0);
    EXPECT_LE(pair.session->ledger().peak_bytes(), pair.session->plan().total_bytes);
    EXPECT_EQ(testing::Held(*pair.session), testing::Held(*twin.session));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, VideoPairs, ::testing::ValuesIn(kFamilies),
                         [](const auto& info) { return info.param.name; });

// Times of the pairs' first places on the time axis, for frames at these times.
std::vector<int32_t> Axis(const Family& family, const std::vector<int64_t>& times) {
  const Pair pair(family.model, family.encoder(), {"streaming_llm", 512});
  for (size_t i = 0; i < times.size(); ++i) EXPECT_TRUE(Show(pair, static_cast<int>(i), times[i]).ok());
  EXPECT_TRUE(pair.reader->Recall({}).ok());
  const std::vector<Place> places = PlacesIn(*pair.session);
  std::vector<int32_t> out;
  for (size_t i = 0; i < places.size(); ++i) {
    const SlotMeta& slot = pair.session->pot().meta(0)[i];
    if (slot.modality == Modality::kVideo && slot.row == 0) out.push_back(places[i].time - places[1].time);
  }
  return out;
}

// Two steps a second, rounded down from the video's beginning; of frames far apart not more than a frame has rows.
TEST(VideoTime, Qwen25VlCountsSeconds) {
  const Family& family = kFamilies[1];
  EXPECT_EQ(Axis(family, {0, 500, 1000, 1500, 2000, 2500}), (std::vector<int32_t>{0, 2, 4}));
  EXPECT_EQ(Axis(family, {0, 1000, 2000, 3000, 4000}), (std::vector<int32_t>{0, 4, 8}));
  EXPECT_EQ(Axis(family, {0, 333, 667, 1000, 1333, 1667, 2000}), (std::vector<int32_t>{0, 1, 2, 4}));
  EXPECT_EQ(Axis(family, {7000, 7100, 7200, 7300, 7400, 7500, 7600, 7700}), (std::vector<int32_t>{0, 0, 0, 1}));
  EXPECT_EQ(Axis(family, {0, 1000, 3'600'000, 3'601'000, 3'602'000}), (std::vector<int32_t>{0, kRows, kRows + 4}));
}

TEST(VideoTime, Qwen2VlCountsPairs) {
  EXPECT_EQ(Axis(kFamilies[0], {0, 500, 1000, 1500, 90'000}), (std::vector<int32_t>{0, 1, 2}));
}

// The file says how many steps a second has; without the key it is two, and a number out of bounds is named.
TEST(VideoTime, StepsOfASecondAreTheFiles) {
  const std::string path = ::testing::TempDir() + "steps.gguf", key = "clip.vision.tokens_per_second";
  std::ifstream in(VisionDir() + "qwen25vl_merger.gguf", std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const size_t at = good.find(key);
  ASSERT_NE(at, std::string::npos);
  const auto load = [&](const std::string& bytes, double* steps) {
    std::ofstream(path, std::ios::binary) << bytes;
    const auto file = std::move(GgufFile::Open(path)).value();
    auto backend = MakeRefBackend();
    Ledger ledger;
    const auto encoder = LoadEncoder(*file, *backend, ledger);
    if (encoder.ok()) *steps = (*encoder)->config().pairing.steps_per_second;
    return encoder.status();
  };
  // Behind the key: its type, then 32 bits.
  const auto with = [&](const char* value) { return std::string(good).replace(at + key.size() + 4, 4, value, 4); };
  double steps = 0;
  ASSERT_TRUE(load(with("\x19\0\0\0"), &steps).ok());
  EXPECT_EQ(steps, 25);
  ASSERT_TRUE(load(std::string(good).replace(at, 1, "x"), &steps).ok());
  EXPECT_EQ(steps, 2);
  for (const char* bad : {"\0\0\0\0", "\xff\xff\xff\xff"}) {
    const Status status = load(with(bad), &steps);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_NE(status.message().find(key), std::string::npos) << status.message();
  }
  std::remove(path.c_str());
}

// The words before a pair: the mean of its frames' times, from the video's own beginning.
TEST(VideoTime, Qwen3VlSaysSeconds) {
  const Family& family = kFamilies[2];
  const Pair pair(family.model, family.encoder(), {"streaming_llm", 512});
  pair.reader->frames().BeginAt(60'000);
  for (const int64_t t_ms : {60'000, 61'000, 62'000, 63'000, 123'400}) ASSERT_TRUE(Show(pair, 0, t_ms).ok());
  ASSERT_TRUE(pair.reader->Recall({}).ok());
  std::string said;
  for (const SlotMeta& slot : pair.session->pot().meta(0)) {
    if (slot.token_id >= 0) said += pair.model->tokenizer().TokenBytes(slot.token_id, /*show_special=*/false);
  }
  EXPECT_EQ(said, "<0.5 seconds><2.5 seconds><63.4 seconds>");
}

}  // namespace
}  // namespace weir
