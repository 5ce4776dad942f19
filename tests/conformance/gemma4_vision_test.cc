// SPDX-License-Identifier: Apache-2.0
// Gemma 4 with pictures, as the small and as the large models are: encoders and pairs against the reference
// implementation that made tests/golden/vision/gemma4_vision.golden and gemma4_large.golden
// (tools/golden/gemma4_vision.py); rows that see each other in layers with a window, whole and cut; every policy over a
// stream of words and pictures.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "support/pair.h"

namespace weir {
namespace {

using testing::Golden;
using testing::GoldenEntry;
using testing::Pair;
using testing::TinyEncoder;
using testing::VisionDir;

constexpr int32_t kFactor = 9, kRows = 70;

const Golden& Small() {
  static const Golden golden = testing::ReadGolden(VisionDir() + "gemma4_vision.golden");
  return golden;
}
const Golden& Large() {
  static const Golden golden = testing::ReadGolden(VisionDir() + "gemma4_large.golden");
  return golden;
}
Pair SmallPair(const Pair::How& how = {}) { return Pair("gemma4_text.gguf", "gemma4_vision.gguf", how); }
Pair LargePair(const Pair::How& how = {}) { return Pair("gemma4_large_text.gguf", "gemma4_large_vision.gguf", how); }

ImageTransform Transform() {
  ImageTransform out;
  out.fit = Fit::kMost;
  out.factor = kFactor;
  out.max_pixels = kRows * kFactor * kFactor;
  for (int c = 0; c < 3; ++c) out.mean[c] = out.std[c] = 0.5f;
  return out;
}

void ExpectOnce(const RgbView& image, const GoldenEntry& want) {
  const ImageTransform transform = Transform();
  Ledger ledger;
  std::vector<float> out(static_cast<size_t>(InputFloats(transform)));
  ASSERT_TRUE(Preprocess(image, transform, ledger, out.data()).ok());
  EXPECT_LE(ledger.peak_bytes(), PreprocessBytes(image.width, image.height, transform));
  const PictureSize size = InputSize(out.data(), transform);
  ASSERT_EQ(size.width, want.cols);
  ASSERT_EQ(size.height * 3, want.rows);
  testing::ExpectSamePixels(out.data(), want, transform, static_cast<size_t>(size.width * size.height));
}

TEST(Gemma4Vision, PicturesMatchTheReference) {
  EXPECT_EQ(testing::ForEachPicture(
                Small(), "once",
                [](const std::string&, const RgbView& image, const GoldenEntry& want) { ExpectOnce(image, want); }),
            5);
}

TEST(Gemma4Vision, RealPictures) { testing::ForEachFile("gemma4_vision_files.golden", ExpectOnce); }

// Of a side that would vanish one line of squares stays, as long as the rows allow.
TEST(Gemma4Vision, LongPicturesKeepALine) {
  for (const auto& [width, height, across, down] : {std::tuple{1, 5000, 1, kRows},
                                                    {5000, 1, kRows, 1},
                                                    {kRows * 3 + 1, 3, kRows, 1},
                                                    {kRows * 3, 3, kRows, 1},
                                                    {1, 1, 8, 8}}) {
    const auto size = MultiplesSize(width, height, Transform());
    ASSERT_TRUE(size.ok());
    EXPECT_EQ(size->width, across * kFactor) << width << " x " << height;
    EXPECT_EQ(size->height, down * kFactor) << width << " x " << height;
  }
}

TEST(Gemma4Vision, EveryIntermediateMatchesTheReference) {
  testing::ExpectEncoder("gemma4_vision.gguf", Small(), "mm.fc");
  testing::ExpectEncoder("gemma4_large_vision.gguf", Large(), "mm.fc");
}

TEST(Gemma4Vision, RowsMatchTheReference) {
  testing::ExpectRows("gemma4_vision.gguf", Small(), 5);
  testing::ExpectRows("gemma4_large_vision.gguf", Large(), 2);
  TinyEncoder tiny("gemma4_vision.gguf", MakeCpuBackend(1));
  EXPECT_EQ(tiny.encoder->config().n_rows, kRows);
  EXPECT_EQ(tiny.encoder->config().max_rows(), kRows);
}

// A window of 20 is shorter than a picture, so that masks of both kinds of layers matter.
TEST(Gemma4Vision, WordsAndPicturesMatchTheReference) {
  for (const char* policy : {"full", "a_vl:S=1,positions=abs", "streaming_llm", "h2o"}) {
    for (const char* device : {"ref", "cpu"}) {
      SCOPED_TRACE(std::string(policy) + " on " + device);
      testing::ExpectTalk(Small(), SmallPair({policy, 256, device}), 1e-4);
      // With a policy that evicts, a chunk is a quarter of the pot.
      testing::ExpectTalk(Large(), LargePair({policy, 512, device}), 1e-4);
    }
  }
}

TEST(Gemma4Vision, TheSameWordsFollow) {
  for (const bool large : {false, true}) {
    for (const char* device : {"ref", "cpu"}) {
      SCOPED_TRACE(std::string(large ? "large on " : "small on ") + device);
      const Pair pair = large ? LargePair({"full", 256, device}) : SmallPair({"full", 256, device});
      testing::ExpectTalk(large ? Large() : Small(), pair, 1e-4);
      for (const float want : (large ? Large() : Small()).at("greedy.ids").data) {
        const std::vector<float> logits = testing::LogitsOf(*pair.session);
        const auto best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
        ASSERT_EQ(best, want);
        pair.Say({best});
      }
    }
  }
}

// What a picture's rows see in each other changes what follows, in the large models alone.
TEST(Gemma4Vision, RowsSeeEachOtherInLargeModels) {
  for (const bool large : {false, true}) {
    const Golden& golden = large ? Large() : Small();
    const GoldenEntry &talk = golden.at("talk.logits"), &causal = golden.at("causal.logits");
    const double apart = testing::RelativeError(talk.data.data() + talk.data.size() - talk.cols, causal.data.data(),
                                                static_cast<size_t>(talk.cols));
    if (large) {
      EXPECT_GT(apart, 1e-2);
    } else {
      EXPECT_LT(apart, 1e-6);
    }
  }
}

// Rows one by one: in a large model the reference without two-way attention.
TEST(Gemma4Vision, OneRowAtATimeIsCausal) {
  const Pair pair = LargePair();
  const GoldenEntry &ids = Large().at("talk.ids"), &want = Large().at("causal.logits"),
                    &pictures = Large().at("talk.pictures");
  Ledger ledger;
  auto images = std::move(ImageEncoder::Make(pair.encoder->encoder(), ledger)).value();
  size_t picture = 0;
  for (int64_t row = 0; row < ids.rows;) {
    if (ids.data[row] >= 0) {
      pair.Say({static_cast<int32_t>(ids.data[row++])});
      continue;
    }
    const auto width = static_cast<int32_t>(pictures.data[picture]),
               height = static_cast<int32_t>(pictures.data[picture + 1]);
    picture += 2;
    const std::vector<uint8_t> rgb = testing::Picture(static_cast<uint32_t>(width), static_cast<uint32_t>(height));
    const std::span<float> made = std::move(images->Encode({rgb.data(), width, height})).value();
    const auto n_embd = static_cast<size_t>(images->config().n_embd);
    for (size_t i = 0; i < made.size(); i += n_embd, ++row) {
      ASSERT_TRUE(pair.session->AppendEmbeddings(made.subspan(i, n_embd), Modality::kImage, {}).ok());
    }
  }
  const std::vector<float> logits = testing::LogitsOf(*pair.session);
  EXPECT_LT(testing::RelativeError(logits.data(), want.data.data(), logits.size()), 1e-4);
}

// A picture in two chunks is two blocks in a large model, and the same picture in a small one.
TEST(Gemma4Vision, APictureCutInChunksIsBlocks) {
  for (const bool large : {false, true}) {
    const auto read = [&](size_t step) {
      const Pair pair = large ? LargePair() : SmallPair();
      const auto n_embd = static_cast<size_t>(pair.reader->config().n_embd);
      const GoldenEntry& rows = (large ? Large() : Small()).at("rows.90x61");
      pair.Say({20, 21, 22});
      for (size_t row = 0; row < static_cast<size_t>(rows.rows); row += step) {
        const size_t n = std::min<size_t>(step, static_cast<size_t>(rows.rows) - row);
        const std::span<const float> part(rows.data.data() + row * n_embd, n * n_embd);
        EXPECT_TRUE(pair.session->AppendEmbeddings(part, Modality::kImage, {}).ok());
      }
      return testing::LogitsOf(*pair.session);
    };
    const std::vector<float> together = read(kRows), apart = read(31);
    const double error = testing::RelativeError(together.data(), apart.data(), apart.size());
    if (large) {
      EXPECT_GT(error, 1e-3);
    } else {
      EXPECT_LT(error, 1e-5);
    }
  }
}

// The 280 rows of the released models are more than a usual chunk.
TEST(Gemma4Vision, AChunkHasRoomForAPicture) {
  EXPECT_EQ(LargePair({"h2o", 2048}).session->plan().chunk_rows, 280);
  EXPECT_EQ(LargePair({"full", 2048}).session->plan().chunk_rows, 280);
  EXPECT_EQ(SmallPair({"h2o", 2048}).session->plan().chunk_rows, 256);
}

TEST(Gemma4Vision, AFrameIsReadOnce) {
  const Pair pair = SmallPair();
  std::vector<float> frame(static_cast<size_t>(pair.reader->n_prepared()), 0.25f);
  SetInputSize({2 * kFactor, 3 * kFactor}, pair.reader->config().transform, frame.data());
  ASSERT_TRUE(pair.reader->ReadPrepared(frame.data(), {}).ok());
  EXPECT_EQ(pair.session->counters().by[static_cast<size_t>(Modality::kVideo)].seen, 6);
  EXPECT_EQ(pair.session->counters().seen, 8);
}

TEST(Gemma4Vision, AnotherModelIsRefusedByName) {
  LoadModelOptions load;
  load.path = VisionDir() + "gemma3_text.gguf";
  auto model = std::move(LoadedModel::Load(load)).value();
  const auto loaded = LoadedEncoder::Load(VisionDir() + "gemma4_vision.gguf", *model);
  EXPECT_EQ(loaded.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(loaded.status().message().find('\n'), std::string::npos) << loaded.status().message();
}

class Gemma4VisionPolicies : public ::testing::TestWithParam<std::string> {};

TEST_P(Gemma4VisionPolicies, AStreamOfPictures) {
  const Pair::How how = {GetParam(), 48};
  testing::ExpectStream(SmallPair(how), SmallPair(how));
  testing::ExpectStream(LargePair(how), LargePair(how));
}

INSTANTIATE_TEST_SUITE_P(All, Gemma4VisionPolicies, ::testing::ValuesIn(testing::EvictingPolicies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weir
