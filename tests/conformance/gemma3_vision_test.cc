// SPDX-License-Identifier: Apache-2.0
// Gemma 3 with pictures: encoder and pair against the reference implementation that made
// tests/golden/vision/gemma3_vision.golden (tools/golden/gemma3_vision.py); rows that see each other, whole and cut;
// every policy over a stream of words and pictures.
#include <gtest/gtest.h>

#include "support/pair.h"

namespace weir {
namespace {

using testing::Golden;
using testing::GoldenEntry;
using testing::Pair;
using testing::TinyEncoder;
using testing::VisionDir;

constexpr int32_t kSide = 30, kRows = 9;

const Golden& Reference() {
  static const Golden golden = testing::ReadGolden(VisionDir() + "gemma3_vision.golden");
  return golden;
}

ImageTransform Transform() {
  ImageTransform out;
  out.size = kSide;
  out.fit = Fit::kStretch;
  out.resample = Resample::kBilinear;
  for (int c = 0; c < 3; ++c) out.mean[c] = out.std[c] = 0.5f;
  return out;
}

void ExpectOnce(const RgbView& image, const GoldenEntry& want) {
  Ledger ledger;
  std::vector<float> out(want.data.size());
  ASSERT_TRUE(Preprocess(image, Transform(), ledger, out.data()).ok());
  testing::ExpectSamePixels(out.data(), want, Transform(), size_t{kSide} * kSide);
}

TEST(Gemma3Vision, PicturesMatchTheReference) {
  EXPECT_EQ(testing::ForEachPicture(
                Reference(), "once",
                [](const std::string&, const RgbView& image, const GoldenEntry& want) { ExpectOnce(image, want); }),
            6);
}

TEST(Gemma3Vision, RealPictures) { testing::ForEachFile("gemma3_vision_files.golden", ExpectOnce); }

TEST(Gemma3Vision, EveryIntermediateMatchesTheReference) {
  testing::ExpectEncoder("gemma3_vision.gguf", Reference(), "mm.fc");
}

TEST(Gemma3Vision, RowsMatchTheReference) {
  testing::ExpectRows("gemma3_vision.gguf", Reference(), 6);
  TinyEncoder tiny("gemma3_vision.gguf", MakeCpuBackend(1));
  EXPECT_EQ(tiny.encoder->config().n_rows, kRows);
  EXPECT_EQ(tiny.encoder->config().max_rows(), kRows);
}

// A window of 14 is shorter than the two pictures, so that masks of both kinds of layers matter.
TEST(Gemma3Vision, WordsAndPicturesMatchTheReference) {
  for (const char* policy : {"full", "a_vl:S=1,positions=abs", "streaming_llm", "h2o"}) {
    for (const char* device : {"ref", "cpu"}) {
      SCOPED_TRACE(std::string(policy) + " on " + device);
      testing::ExpectTalk(Reference(), Pair("gemma3_text.gguf", "gemma3_vision.gguf", {policy, 256, device}));
    }
  }
}

// What a picture's rows see in each other changes what follows: the reference without it is another text.
TEST(Gemma3Vision, RowsSeeEachOther) {
  const GoldenEntry &two_way = Reference().at("talk.logits"), &causal = Reference().at("causal.logits");
  ASSERT_EQ(two_way.data.size(), causal.data.size());
  EXPECT_GT(
      testing::RelativeError(two_way.data.data() + two_way.data.size() - two_way.cols,
                             causal.data.data() + causal.data.size() - causal.cols, static_cast<size_t>(two_way.cols)),
      1e-2);
}

// A picture in two chunks is two blocks: rows of the first do not see the second, as rows that are read before others
// never do. One row at a time is the reference without two-way attention.
TEST(Gemma3Vision, APictureCutInChunksIsBlocks) {
  const Pair whole("gemma3_text.gguf", "gemma3_vision.gguf", {}), cut("gemma3_text.gguf", "gemma3_vision.gguf", {});
  const auto rows = [&](const Pair& pair) {
    Ledger ledger;
    auto images = std::move(ImageEncoder::Make(pair.encoder->encoder(), ledger)).value();
    const std::vector<uint8_t> rgb = testing::Picture(61, 45);
    const std::span<float> made = std::move(images->Encode({rgb.data(), 61, 45})).value();
    return std::vector<float>(made.begin(), made.end());
  };
  const std::vector<float> shown = rows(whole);
  const size_t width = shown.size() / kRows;
  const auto read = [&](const Pair& pair, size_t step) {
    pair.Say({20, 21, 22});
    for (size_t row = 0; row < kRows; row += step) {
      const size_t n = std::min<size_t>(step, kRows - row);
      EXPECT_TRUE(pair.session->AppendEmbeddings({shown.data() + row * width, n * width}, Modality::kImage, {}).ok());
    }
    return testing::LogitsOf(*pair.session);
  };
  const std::vector<float> together = read(whole, kRows), apart = read(cut, 4);
  EXPECT_GT(testing::RelativeError(together.data(), apart.data(), apart.size()), 1e-3);
}

// Words before, between and behind pictures of one row at a time, against `causal.logits`.
TEST(Gemma3Vision, OneRowAtATimeIsCausal) {
  const Pair pair("gemma3_text.gguf", "gemma3_vision.gguf", {});
  const GoldenEntry &ids = Reference().at("talk.ids"), &want = Reference().at("causal.logits"),
                    &pictures = Reference().at("talk.pictures");
  Ledger ledger;
  auto images = std::move(ImageEncoder::Make(pair.encoder->encoder(), ledger)).value();
  size_t picture = 0;
  for (int64_t row = 0; row < want.rows;) {
    if (ids.data[row] >= 0) {
      pair.Say({static_cast<int32_t>(ids.data[row++])});
      continue;
    }
    const auto width = static_cast<int32_t>(pictures.data[picture]),
               height = static_cast<int32_t>(pictures.data[picture + 1]);
    picture += 2;
    const std::vector<uint8_t> rgb = testing::Picture(static_cast<uint32_t>(width), static_cast<uint32_t>(height));
    const std::span<float> made = std::move(images->Encode({rgb.data(), width, height})).value();
    const size_t n = made.size() / kRows;
    for (size_t i = 0; i < kRows; ++i, ++row) {
      ASSERT_TRUE(pair.session->AppendEmbeddings(made.subspan(i * n, n), Modality::kImage, {}).ok());
    }
  }
  const std::vector<float> logits = testing::LogitsOf(*pair.session);
  EXPECT_LT(testing::RelativeError(logits.data(), &want.data[(want.rows - 1) * want.cols], logits.size()), 1e-3);
}

TEST(Gemma3Vision, AFrameIsReadOnce) {
  const Pair pair("gemma3_text.gguf", "gemma3_vision.gguf", {});
  std::vector<float> frame(static_cast<size_t>(pair.reader->n_prepared()), 0.25f);
  ASSERT_TRUE(pair.reader->ReadPrepared(frame.data(), {}).ok());
  EXPECT_EQ(pair.session->counters().by[static_cast<size_t>(Modality::kVideo)].seen, kRows);
  EXPECT_EQ(pair.session->counters().seen, kRows + 4);
}

class Gemma3VisionPolicies : public ::testing::TestWithParam<std::string> {};

TEST_P(Gemma3VisionPolicies, AStreamOfPictures) {
  const Pair::How how = {GetParam(), 48};
  testing::ExpectStream(Pair("gemma3_text.gguf", "gemma3_vision.gguf", how),
                        Pair("gemma3_text.gguf", "gemma3_vision.gguf", how));
}

INSTANTIATE_TEST_SUITE_P(All, Gemma3VisionPolicies, ::testing::ValuesIn(testing::EvictingPolicies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weir
