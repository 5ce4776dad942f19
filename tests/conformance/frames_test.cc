// SPDX-License-Identifier: Apache-2.0
// Encoders that make rows of a video's frames together, against the rules of their papers
// (tools/golden/frames.py): CLIP and its patches as a picture, what becomes of frames, and a session that reads
// it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>

#include "base/rng.h"
#include "chat/session_file.h"
#include "engine/frame_store.h"
#include "engine/loaded_encoder.h"
#include "engine/picture_reader.h"
#include "support/encoder.h"
#include "support/picture.h"

namespace weir {
namespace {

using testing::Golden;
using testing::RelativeError;
using testing::TinyEncoder;
using testing::VisionDir;

constexpr int kSide = 25, kFrames = 16;

struct Family {
  std::string name, last;  // `last`: a picture's rows
  int32_t n_rows, n_recalled;
};
// 16 fine rows; 3 x 4 abstract, 5 x 4 temporal, (2 + 1) x 16 retrieved and spatial.
const Family kStar = {"flash_vstream", "mm.2", 16, 80};
// 12 + 6 + 3 rows; the events of 10 frames are three.
const Family kUnivi = {"chat_univi", "mm.0", 21, 63};

class FramesTest : public ::testing::TestWithParam<Family> {
 protected:
  void SetUp() override { golden_ = testing::ReadGolden(VisionDir() + GetParam().name + ".golden"); }
  std::string File() const { return GetParam().name + ".gguf"; }
  const float* Frame(int t) const { return golden_.at("pixels").data.data() + t * 3 * kSide * kSide; }

  Golden golden_;
};

// Memory that an encoder may not leave, and what lives in it.
struct Guarded {
  std::vector<uint8_t> bytes;
  uint8_t* begin;
  int64_t n;
  std::unique_ptr<FrameMemory> memory;

  explicit Guarded(Encoder& encoder) : n(encoder.FrameMemoryBytes()) {
    bytes.assign(static_cast<size_t>(n) + 256, 0xa5);
    begin = bytes.data() + (64 - reinterpret_cast<uintptr_t>(bytes.data()) % 64) + 64;
    memory = encoder.MakeFrameMemory(begin);
  }
  void ExpectKept() const {
    for (const uint8_t* p = bytes.data(); p < begin; ++p) ASSERT_EQ(*p, 0xa5);
    for (const uint8_t* p = begin + n; p < bytes.data() + bytes.size(); ++p) ASSERT_EQ(*p, 0xa5);
  }
};

// What Recall() gives is the golden's entry NAME, and before its projection the entry BEFORE.
void ExpectRecalled(ImageEncoder& images, FrameMemory& memory, const Golden& golden, const std::string& before,
                    const std::string& name) {
  SCOPED_TRACE(name);
  int n_seen = 0;
  const VisionObserver observer = [&](const std::string& part, int64_t n_rows, int64_t n_cols, const float* data) {
    if (part != "mm.star" && part != "mm.merged") return;
    const auto& want = golden.at(before);
    ++n_seen;
    ASSERT_EQ(n_rows, want.rows);
    ASSERT_EQ(n_cols, want.cols);
    EXPECT_LT(RelativeError(data, want.data.data(), want.data.size()), 1e-4);
  };
  const auto& want = golden.at(name);
  ASSERT_EQ(memory.n_rows(), want.rows);
  const std::span<const float> rows = images.Recall(memory, &observer);
  EXPECT_EQ(n_seen, 1);
  ASSERT_EQ(rows.size(), want.data.size());
  EXPECT_LT(RelativeError(rows.data(), want.data.data(), rows.size()), 1e-4);
  EXPECT_EQ(memory.n_rows(), 0) << "nothing new to tell";
  ASSERT_EQ(images.parts().size(), 1u);
  EXPECT_EQ(images.parts()[0].n_rows, want.rows);
}

TEST_P(FramesTest, EveryIntermediateOfAPictureMatchesTheReference) {
  testing::ExpectIntermediates(File(), golden_, GetParam().last,
                               [&](TinyEncoder& tiny, const VisionObserver* observer) {
                                 Encoder& encoder = *tiny.encoder;
                                 EXPECT_EQ(encoder.config().n_rows, GetParam().n_rows);
                                 EXPECT_EQ(encoder.config().n_recalled, GetParam().n_recalled);
                                 std::vector<uint8_t> memory(static_cast<size_t>(encoder.WorkspaceBytes()) + 128, 0xa5);
                                 uint8_t* begin = memory.data() + 64 - reinterpret_cast<uintptr_t>(memory.data()) % 64;
                                 std::vector<float> rows(static_cast<size_t>(GetParam().n_rows) * 48);
                                 encoder.Encode({Frame(0), rows.data(), begin, observer});
                                 for (size_t i = 0; i < 64; ++i) {
                                   EXPECT_EQ(begin[encoder.WorkspaceBytes() + static_cast<int64_t>(i)], 0xa5);
                                 }
                                 return rows;
                               });
}

TEST(FlashVstream, ItsMemoryIsTheReferencesAtAnyTime) {
  const Golden golden = testing::ReadGolden(VisionDir() + "flash_vstream.golden");
  const float* pixels = golden.at("pixels").data.data();
  for (const bool reference : {true, false}) {
    TinyEncoder tiny("flash_vstream.gguf", reference ? MakeRefBackend() : MakeCpuBackend(2));
    ASSERT_NE(tiny.encoder, nullptr);
    auto images = std::move(ImageEncoder::Make(*tiny.encoder, tiny.ledger)).value();
    Guarded kept(*tiny.encoder);
    EXPECT_EQ(kept.memory->n_rows(), 0);
    for (int round = 0; round < 2; ++round) {
      int n_recalled = 0;
      for (int t = 0; t < kFrames; ++t) {
        EXPECT_FALSE(kept.memory->full());
        images->TakePixels(pixels + t * 3 * kSide * kSide, *kept.memory);
        EXPECT_LE(kept.memory->n_rows(), tiny.encoder->config().n_recalled);
        const std::string at = std::to_string(t + 1);
        if (!golden.contains("rows." + at)) continue;
        ++n_recalled;
        ExpectRecalled(*images, *kept.memory, golden, "star." + at, "rows." + at);
      }
      EXPECT_EQ(n_recalled, 5);
      kept.memory->Clear();
      EXPECT_EQ(kept.memory->n_rows(), 0);
    }
    kept.ExpectKept();
  }
}

// A long static scene leaves room for the next one.
TEST(FlashVstream, EqualFramesAreOneCluster) {
  const Golden golden = testing::ReadGolden(VisionDir() + "flash_vstream.golden");
  TinyEncoder tiny("flash_vstream.gguf", MakeCpuBackend(1));
  ASSERT_NE(tiny.encoder, nullptr);
  auto images = std::move(ImageEncoder::Make(*tiny.encoder, tiny.ledger)).value();
  Guarded kept(*tiny.encoder);
  const auto rows_after = [&](int frame, int n) {
    for (int i = 0; i < n; ++i) {
      images->TakePixels(golden.at("pixels").data.data() + frame * 3 * kSide * kSide, *kept.memory);
    }
    std::vector<float> out;
    const VisionObserver observer = [&](const std::string& name, int64_t n_rows, int64_t n_cols, const float* data) {
      if (name == "mm.star") out.assign(data, data + n_rows * n_cols);
    };
    images->Recall(*kept.memory, &observer);
    return out;
  };
  const size_t width = 40, first = 12 * width;  // behind the abstract rows: clusters of 4 rows
  const std::vector<float> still = rows_after(0, 20), changed = rows_after(9, 1);
  int n_new = 0;
  for (size_t c = 0; c < 5; ++c) {
    const float* cluster = &changed[first + c * 4 * width];
    n_new += RelativeError(cluster, &still[first], 4 * width) > 1e-3;
    for (const float v : still) ASSERT_TRUE(std::isfinite(v));
  }
  EXPECT_EQ(n_new, 1);
  kept.ExpectKept();
}

TEST(ChatUnivi, FramesBecomeTheReferencesEvents) {
  const Golden golden = testing::ReadGolden(VisionDir() + "chat_univi.golden");
  const float* pixels = golden.at("pixels").data.data();
  for (const bool reference : {true, false}) {
    TinyEncoder tiny("chat_univi.gguf", reference ? MakeRefBackend() : MakeCpuBackend(2));
    ASSERT_NE(tiny.encoder, nullptr);
    auto images = std::move(ImageEncoder::Make(*tiny.encoder, tiny.ledger)).value();
    Guarded kept(*tiny.encoder);
    int n_runs = 0;
    for (const auto& [name, want] : golden) {
      int from = 0, to = 0;
      if (std::sscanf(name.c_str(), "rows.%d.%d", &from, &to) != 2) continue;
      ++n_runs;
      for (int t = from; t < to; ++t) images->TakePixels(pixels + t * 3 * kSide * kSide, *kept.memory);
      EXPECT_EQ(kept.memory->full(), to - from == 10);
      ExpectRecalled(*images, *kept.memory, golden, "merged" + name.substr(4), name);
      EXPECT_FALSE(kept.memory->full());
    }
    EXPECT_EQ(n_runs, 4);
    kept.ExpectKept();
  }
}

TEST_P(FramesTest, ThreadCountChangesNothing) {
  std::vector<float> first;
  for (const int threads : {1, 2, 3}) {
    TinyEncoder tiny(File(), MakeCpuBackend(threads));
    ASSERT_NE(tiny.encoder, nullptr);
    auto images = std::move(ImageEncoder::Make(*tiny.encoder, tiny.ledger)).value();
    Guarded kept(*tiny.encoder);
    for (int t = 0; t < 9; ++t) images->TakePixels(Frame(t), *kept.memory);
    const std::span<const float> rows = images->Recall(*kept.memory);
    if (first.empty()) first.assign(rows.begin(), rows.end());
    EXPECT_EQ(first, std::vector<float>(rows.begin(), rows.end())) << threads << " threads";
  }
}

struct Pair {
  std::unique_ptr<LoadedModel> model;
  std::unique_ptr<LoadedEncoder> encoder;
  std::unique_ptr<Session> session;
  std::unique_ptr<PictureReader> reader;

  explicit Pair(const std::string& file) {
    LoadModelOptions load;
    load.path = VisionDir() + "llava.gguf";
    load.n_threads = 2;
    model = std::move(LoadedModel::Load(load)).value();
    encoder = std::move(LoadedEncoder::Load(VisionDir() + file, *model)).value();
    PictureRoom room;
    room.Include(64, 64);
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec("streaming_llm")).value();
    options.pot_slots = 256;
    options.k_type = options.v_type = DType::kF32;
    options.beside = std::move(PictureReader::Plan(encoder->encoder(), room)).value();
    session = std::move(Session::Make(model->model(), model->backend(), options)).value();
    reader = std::move(PictureReader::Make(encoder->encoder(), *session, room)).value();
  }
  int64_t seen(Modality modality) const { return session->counters().by[static_cast<size_t>(modality)].seen; }
  std::vector<float> Logits() const {
    const auto logits = std::move(session->Logits()).value();
    return {logits.begin(), logits.end()};
  }
};

// Frames take no slot until they are asked about; then their rows stand at the newest frame's time.
TEST_P(FramesTest, ASessionReadsWhatIsKeptBeforeAQuestion) {
  Pair pair(File());
  const std::vector<int32_t> before = {1, 5, 9}, question = {17, 4, 33};
  ASSERT_TRUE(pair.session->Append(before).ok());
  ASSERT_TRUE(pair.reader->Recall({}).ok());
  EXPECT_EQ(pair.session->counters().seen, 3) << "nothing was looked at";
  const bool star = GetParam().name == "flash_vstream";
  const int n_frames = star ? 9 : 10;
  for (int t = 0; t < n_frames; ++t) {
    Session::AppendOptions append;
    append.t_src_ms = 500 * t;
    ASSERT_TRUE(pair.reader->ReadPrepared(Frame(t), append).ok());
  }
  EXPECT_EQ(pair.session->counters().seen, 3);
  ASSERT_TRUE(pair.reader->Recall({}).ok());
  ASSERT_TRUE(pair.reader->Recall({}).ok()) << "once is enough";
  const auto& rows = golden_.at(star ? "rows.9" : "rows.0.10");
  EXPECT_EQ(pair.seen(Modality::kVideo), rows.rows);
  for (const SlotMeta& slot : pair.session->pot().meta(0)) {
    if (slot.modality == Modality::kVideo) {
      EXPECT_EQ(slot.t_src_ms, 500 * (n_frames - 1));
    }
  }
  ASSERT_TRUE(pair.session->Append(question).ok());
  const std::vector<float> got = pair.Logits();
  Pair plain(File());
  ASSERT_TRUE(plain.session->Append(before).ok());
  ASSERT_TRUE(plain.session->AppendEmbeddings(rows.data, Modality::kVideo, {}).ok());
  ASSERT_TRUE(plain.session->Append(question).ok());
  EXPECT_LT(RelativeError(got.data(), plain.Logits().data(), got.size()), 1e-3);
  EXPECT_LE(pair.session->ledger().peak_bytes(), pair.session->plan().total_bytes);
}

// A snapshot replaces a session and its frames, or neither.
TEST_P(FramesTest, ForgedFramesLeaveASessionAsItWas) {
  Pair from(File()), to(File());
  ASSERT_TRUE(to.session->Append(std::vector<int32_t>{1, 5, 9}).ok());
  ASSERT_TRUE(to.reader->ReadPrepared(Frame(7), {}).ok());
  for (int t = 0; t < 5; ++t) ASSERT_TRUE(from.reader->ReadPrepared(Frame(t), {}).ok());
  const auto saved = [](Pair& pair) {
    std::vector<uint8_t> out;
    VectorSink sink(&out);
    EXPECT_TRUE(SaveState(*pair.session, &pair.reader->frames(), sink).ok());
    return out;
  };
  const auto encoder = GgufFile::Open(VisionDir() + File());
  ASSERT_TRUE(encoder.ok()) << encoder.status().message();
  SessionNote note = SessionNote::Of(*from.session, OnOverflow::kEvict, "", "");
  note.Describe(from.reader->frames(), **encoder);
  const auto restore = [&](const std::vector<uint8_t>& bytes) {
    SpanSource source(bytes);
    return RestoreState(note, source, encoder->get(), to.session.get(), &to.reader->frames());
  };
  const std::vector<uint8_t> good = saved(from), before = saved(to);
  const size_t frames_at = good.size() - static_cast<size_t>(note.frames->bytes);
  const double no_number = std::numeric_limits<double>::quiet_NaN();
  std::vector<std::vector<uint8_t>> forged(3, good);
  forged[0][frames_at] ^= 1;                                              // the first word
  std::memcpy(forged[1].data() + good.size() - 8, &no_number, 8);         // the last number
  std::memset(forged[2].data() + frames_at + 16, 0x7F, sizeof(int64_t));  // how many frames were taken
  for (const std::vector<uint8_t>& bytes : forged) {
    EXPECT_EQ(restore(bytes).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(saved(to), before);
  }
  ASSERT_TRUE(restore(good).ok());
  EXPECT_EQ(saved(to), good);
}

// A memory that is full is read by itself; one that was forgotten is not.
TEST_P(FramesTest, AVideoWithoutEndNeedsNoMoreMemory) {
  Pair pair(File());
  for (int t = 0; t < 45; ++t) {
    ASSERT_TRUE(pair.reader->ReadPrepared(Frame(t % kFrames), {}).ok());
    EXPECT_LE(pair.session->ledger().peak_bytes(), pair.session->plan().total_bytes);
  }
  const bool star = GetParam().name == "flash_vstream";
  EXPECT_EQ(pair.seen(Modality::kVideo), star ? 0 : 4 * 63);
  ASSERT_TRUE(pair.reader->Recall({}).ok());
  EXPECT_EQ(pair.seen(Modality::kVideo), star ? 80 : 4 * 63 + 2 * 21);
  ASSERT_TRUE(pair.reader->ReadPrepared(Frame(0), {}).ok());
  pair.reader->frames().Forget();
  const int64_t seen = pair.session->counters().seen;
  ASSERT_TRUE(pair.reader->Recall({}).ok());
  EXPECT_EQ(pair.session->counters().seen, seen);
  const std::vector<uint8_t> rgb = testing::Picture(30, 40);
  ASSERT_TRUE(pair.reader->ReadPixels({rgb.data(), 30, 40}, Modality::kImage, {}).ok());
  EXPECT_EQ(pair.seen(Modality::kImage), GetParam().n_rows) << "a picture is read at once";
  ASSERT_TRUE(pair.reader->ReadPixels({rgb.data(), 30, 40}, Modality::kVideo, {}).ok());
  EXPECT_EQ(pair.session->counters().seen, seen + GetParam().n_rows);
}

TEST_P(FramesTest, ItsMemoryIsInThePlan) {
  Pair pair(File());
  PictureRoom room;
  room.Include(64, 64);
  Encoder& encoder = pair.encoder->encoder();
  int64_t planned = 0;
  const auto plan = PictureReader::Plan(encoder, room);
  ASSERT_TRUE(plan.ok());
  for (const PlanItem& item : *plan) {
    if (item.what.find("frames") != std::string::npos) planned += item.bytes;
  }
  EXPECT_EQ(planned, PageRound(encoder.FrameMemoryBytes()));
  EXPECT_GE(planned, encoder.config().n_recalled * 40 * 4);
  EXPECT_EQ(PictureReader::Plan(encoder, room, std::move(ParsePrunerSpec("l2")).value()).status().code(),
            StatusCode::kUnsupported);
}

// At any moment: what is restored or copied makes the rows that the original makes, of all frames to come.
TEST_P(FramesTest, WhatIsKeptIsSavedAndCopied) {
  TinyEncoder tiny(File(), MakeCpuBackend(2));
  ASSERT_NE(tiny.encoder, nullptr);
  auto images = std::move(ImageEncoder::Make(*tiny.encoder, tiny.ledger)).value();
  const auto take = [&](FrameMemory& memory, int from, int to) {
    std::vector<float> out;
    for (int t = from; t < to; ++t) {
      if (memory.full()) images->Recall(memory);
      images->TakePixels(Frame(t % kFrames), memory);
      if (t % 3 != 2) continue;
      const std::span<const float> rows = images->Recall(memory);
      out.insert(out.end(), rows.begin(), rows.end());
    }
    return out;
  };
  for (const int n : {0, 1, 2, 3, 4, 7, 14, 40}) {
    SCOPED_TRACE(n);
    Guarded first(*tiny.encoder), second(*tiny.encoder), third(*tiny.encoder);
    take(*first.memory, 0, n);
    std::vector<uint8_t> saved;
    VectorSink sink(&saved);
    ASSERT_TRUE(first.memory->Save(sink).ok());
    EXPECT_EQ(std::ssize(saved), first.memory->state_bytes());
    take(*second.memory, 3, 8);  // whatever it held is gone
    SpanSource source(saved);
    const Status restored = second.memory->Restore(source);
    ASSERT_TRUE(restored.ok()) << restored.message();
    EXPECT_EQ(source.n_left(), 0);
    third.memory->CopyFrom(*first.memory);
    EXPECT_EQ(second.memory->n_rows(), first.memory->n_rows());
    const std::vector<float> rows = take(*first.memory, n, n + 13);
    EXPECT_FALSE(rows.empty());
    EXPECT_EQ(take(*second.memory, n, n + 13), rows);
    EXPECT_EQ(take(*third.memory, n, n + 13), rows);
    second.ExpectKept();
    third.ExpectKept();
  }
}

TEST_P(FramesTest, BytesOfNoStoreAreRefused) {
  Pair pair(File()), other(GetParam().name == "flash_vstream" ? "chat_univi.gguf" : "flash_vstream.gguf");
  FrameStore& store = pair.reader->frames();
  EXPECT_EQ(store.state_bytes(), 0);
  for (int t = 0; t < 5; ++t) ASSERT_TRUE(pair.reader->ReadPrepared(Frame(t), {}).ok());
  std::vector<uint8_t> good;
  VectorSink sink(&good);
  ASSERT_TRUE(store.Save(sink).ok());
  EXPECT_EQ(std::ssize(good), store.state_bytes());
  const auto restore = [](FrameStore& to, std::span<const uint8_t> bytes) {
    SpanSource source(bytes);
    return to.Restore(source);
  };
  EXPECT_EQ(restore(other.reader->frames(), good).code(), StatusCode::kInvalidArgument);
  for (size_t n = 1; n < good.size(); n += n < 64 ? 1 : good.size() / 23) {
    EXPECT_EQ(restore(store, std::span(good).first(n)).code(), StatusCode::kInvalidArgument) << n << " bytes";
    EXPECT_EQ(store.state_bytes(), 0) << "nothing is kept of half of it";
  }
  std::vector<uint8_t> more = good;
  more.push_back(0);
  EXPECT_EQ(restore(store, more).code(), StatusCode::kInvalidArgument);
  // A number that is none, and in the last place of Flash-VStream's a weight beyond the number of frames.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const size_t at : {size_t{32}, good.size() - 8}) {
    std::vector<uint8_t> bad = good;
    std::memcpy(&bad[at], &nan, sizeof(nan));
    std::memcpy(&bad[at + 4], &nan, sizeof(nan));
    EXPECT_EQ(restore(store, bad).code(), StatusCode::kInvalidArgument) << at;
  }
  // Any byte may be changed: the state is refused, or the stream continues with it.
  Rng rng(7);
  for (int i = 0; i < 300; ++i) {
    std::vector<uint8_t> bad = good;
    bad[static_cast<size_t>(rng.Below(i < 100 ? 32 : bad.size()))] ^= static_cast<uint8_t>(1 + rng.Below(255));
    const Status status = restore(store, bad);
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument);
    (void)pair.reader->ReadPrepared(Frame(i % kFrames), {});
    (void)pair.reader->Recall({});
  }
  EXPECT_TRUE(restore(store, good).ok());
  EXPECT_EQ(std::ssize(good), store.state_bytes());
  EXPECT_TRUE(restore(store, {}).ok());
  EXPECT_FALSE(store.fresh()) << "a snapshot without frames is of a stream that keeps none";
}

// Sizes of the memory out of bounds, of any of its keys.
TEST_P(FramesTest, SizesOutOfBoundsAreNamed) {
  const std::string path = ::testing::TempDir() + GetParam().name + "_bad.gguf";
  std::vector<std::string> keys = {"buffer_count"};
  if (GetParam().name == "flash_vstream") {
    keys.insert(keys.end(), {"spatial_side", "temporal_side", "temporal_count", "abstract_count", "retrieved_count"});
  } else {
    keys.push_back("per_event");
  }
  for (const std::string& key : keys) {
    SCOPED_TRACE(key);
    std::string bytes(1 << 20, '\0');
    std::FILE* in = std::fopen((VisionDir() + File()).c_str(), "rb");
    ASSERT_NE(in, nullptr);
    bytes.resize(std::fread(bytes.data(), 1, bytes.size(), in));
    std::fclose(in);
    const size_t at = bytes.find("clip.vision.frames." + key);
    ASSERT_NE(at, std::string::npos);
    // Behind the key: its type, then 32 bits.
    bytes.replace(at + 19 + key.size() + 4, 4, "\xff\xff\xff\xff");
    std::FILE* out = std::fopen(path.c_str(), "wb");
    ASSERT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), out), bytes.size());
    std::fclose(out);
    const auto file = std::move(GgufFile::Open(path)).value();
    auto backend = MakeRefBackend();
    Ledger ledger;
    const Status status = LoadEncoder(*file, *backend, ledger).status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_NE(status.message().find(key), std::string::npos) << status.message();
    EXPECT_EQ(ledger.used_bytes(), 0);
  }
  std::remove(path.c_str());
}

INSTANTIATE_TEST_SUITE_P(Families, FramesTest, ::testing::Values(kStar, kUnivi),
                         [](const auto& info) { return info.param.name; });

// Where a device may be used and none is, the model says why it runs on the processor.
TEST(LoadedModel, SaysWhyItIsOnTheProcessor) {
  LoadModelOptions load;
  load.path = VisionDir() + "llava.gguf";
  load.n_threads = 2;
  load.device = "cpu";
  EXPECT_EQ(std::move(LoadedModel::Load(load)).value()->device_note(), "");
  load.device = "auto";
  const auto model = std::move(LoadedModel::Load(load)).value();
  EXPECT_EQ(model->backend().on_host(), !model->device_note().empty());
}

}  // namespace
}  // namespace weir
