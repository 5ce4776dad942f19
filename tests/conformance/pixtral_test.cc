// SPDX-License-Identifier: Apache-2.0
// Pixtral's encoder, alone and with Mistral 3, against the reference implementation that made
// tests/golden/vision/mistral3_pixtral.golden (tools/golden/pixtral.py); every policy over a stream of words and
// pictures.
#include <gtest/gtest.h>

#include "support/pair.h"

namespace weir {
namespace {

using testing::Golden;
using testing::GoldenEntry;
using testing::Pair;
using testing::TinyEncoder;
using testing::VisionDir;

constexpr int32_t kSide = 40, kFactor = 10;

const Golden& Reference() {
  static const Golden golden = testing::ReadGolden(VisionDir() + "mistral3_pixtral.golden");
  return golden;
}

ImageTransform Transform() {
  ImageTransform out;
  out.fit = Fit::kLongest;
  out.size = out.longest_side = kSide;
  out.factor = kFactor;
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

TEST(Pixtral, PicturesMatchTheReference) {
  EXPECT_EQ(testing::ForEachPicture(
                Reference(), "once",
                [](const std::string&, const RgbView& image, const GoldenEntry& want) { ExpectOnce(image, want); }),
            7);
}

TEST(Pixtral, RealPictures) { testing::ForEachFile("pixtral_files.golden", ExpectOnce); }

// Of a side that would vanish, one line stays.
TEST(Pixtral, LongPicturesKeepALine) {
  const auto size = MultiplesSize(1, 5000, Transform());
  ASSERT_TRUE(size.ok());
  EXPECT_EQ(size->width, kFactor);
  EXPECT_EQ(size->height, kSide);
}

TEST(Pixtral, EveryIntermediateMatchesTheReference) {
  testing::ExpectEncoder("mistral3_pixtral.gguf", Reference(), "mm.rows");
}

TEST(Pixtral, EveryIntermediateWithoutMerging) {
  testing::ExpectEncoder("pixtral.gguf", testing::ReadGolden(VisionDir() + "pixtral.golden"), "mm.rows");
}

TEST(Pixtral, RowsMatchTheReference) {
  testing::ExpectRows("mistral3_pixtral.gguf", Reference(), 7);
  TinyEncoder tiny("mistral3_pixtral.gguf", MakeCpuBackend(1));
  EXPECT_EQ(tiny.encoder->config().n_rows, 4 * 5 - 1) << "four lines of four, and the ends of three";
}

TEST(Pixtral, WordsAndPicturesMatchTheReference) {
  for (const char* policy : {"full", "streaming_llm", "h2o"}) {
    for (const char* device : {"ref", "cpu"}) {
      SCOPED_TRACE(std::string(policy) + " on " + device);
      testing::ExpectTalk(Reference(), Pair("mistral3_text.gguf", "mistral3_pixtral.gguf", {policy, 256, device}));
    }
  }
}

TEST(Pixtral, AnotherModelIsRefusedByName) {
  LoadModelOptions load;
  load.path = VisionDir() + "qwen2vl.gguf";
  auto model = std::move(LoadedModel::Load(load)).value();
  const auto loaded = LoadedEncoder::Load(VisionDir() + "mistral3_pixtral.gguf", *model);
  EXPECT_EQ(loaded.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(loaded.status().message().find("[IMG_END]"), std::string::npos) << loaded.status().message();
  EXPECT_EQ(loaded.status().message().find('\n'), std::string::npos);
}

class PixtralPolicies : public ::testing::TestWithParam<std::string> {};

TEST_P(PixtralPolicies, AStreamOfPictures) {
  const Pair::How how = {GetParam(), 48};
  testing::ExpectStream(Pair("mistral3_text.gguf", "mistral3_pixtral.gguf", how),
                        Pair("mistral3_text.gguf", "mistral3_pixtral.gguf", how));
}

INSTANTIATE_TEST_SUITE_P(All, PixtralPolicies, ::testing::ValuesIn(testing::EvictingPolicies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weir
