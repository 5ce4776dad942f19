// SPDX-License-Identifier: Apache-2.0
// Small copies of pictures and of encoders' inputs: their sizes, their colours, and what of an input they show.
#include "vision/small_copy.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

namespace weir {
namespace {

// Left half red, right half blue, and a green line along the top quarter.
std::vector<uint8_t> Halves(int32_t width, int32_t height) {
  std::vector<uint8_t> out;
  for (int32_t y = 0; y < height; ++y) {
    for (int32_t x = 0; x < width; ++x) {
      const bool line = y < height / 4, left = x < width / 2;
      out.insert(out.end(), {static_cast<uint8_t>(left && !line ? 255 : 0), static_cast<uint8_t>(line ? 255 : 0),
                             static_cast<uint8_t>(left || line ? 0 : 255)});
    }
  }
  return out;
}

// The colour at a place of a copy, both from 0 to 1.
std::vector<int> At(const std::vector<uint8_t>& copy, PictureSize size, double x, double y) {
  const auto column = static_cast<int64_t>(x * size.width), row = static_cast<int64_t>(y * size.height);
  const uint8_t* const pixel = copy.data() + 3 * (row * size.width + column);
  return {pixel[0], pixel[1], pixel[2]};
}

void ExpectHalves(const std::vector<uint8_t>& copy, PictureSize size, int near) {
  const auto expect = [&](double x, double y, std::vector<int> colour) {
    const std::vector<int> is = At(copy, size, x, y);
    for (size_t c = 0; c < 3; ++c) EXPECT_NEAR(is[c], colour[c], near) << x << " " << y << " " << c;
  };
  expect(0.25, 0.6, {255, 0, 0});
  expect(0.75, 0.6, {0, 0, 255});
  expect(0.25, 0.1, {0, 255, 0});
  expect(0.75, 0.1, {0, 255, 0});
}

TEST(SmallCopyTest, APictureThatFitsIsCopied) {
  const std::vector<uint8_t> pixels = Halves(40, 24);
  std::vector<uint8_t> copy(pixels.size());
  const PictureSize size = CopySmall({pixels.data(), 40, 24}, 40 * 24, copy.data());
  EXPECT_EQ(size.width, 40);
  EXPECT_EQ(size.height, 24);
  EXPECT_EQ(copy, pixels);
}

TEST(SmallCopyTest, ALargePictureKeepsItsRatioAndTheBound) {
  const std::vector<uint8_t> pixels = Halves(640, 360);
  std::vector<uint8_t> copy(3 * 3600);
  const PictureSize size = CopySmall({pixels.data(), 640, 360}, 3600, copy.data());
  EXPECT_EQ(size.width, 80);
  EXPECT_EQ(size.height, 45);
  ExpectHalves(copy, size, 0);
}

TEST(SmallCopyTest, MeansOfFieldsNotSinglePixels) {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 64; ++i) pixels.insert(pixels.end(), 3, (i + i / 8) % 2 == 0 ? 200 : 100);
  std::vector<uint8_t> copy(3 * 16);
  const PictureSize size = CopySmall({pixels.data(), 8, 8}, 16, copy.data());
  EXPECT_EQ(size.width, 4);
  EXPECT_EQ(copy, std::vector<uint8_t>(48, 150));
}

TEST(SmallCopyTest, ExtremeRatiosStayWithinTheBound) {
  for (const auto& [width, height] :
       std::vector<std::pair<int32_t, int32_t>>{{5000, 1}, {1, 5000}, {4999, 2}, {1, 1}}) {
    const std::vector<uint8_t> pixels(static_cast<size_t>(width) * static_cast<size_t>(height) * 3, 7);
    for (const int64_t most : {1, 2, 17, 400}) {
      std::vector<uint8_t> copy(static_cast<size_t>(3 * most));
      const PictureSize size = CopySmall({pixels.data(), width, height}, most, copy.data());
      EXPECT_GE(size.width, 1);
      EXPECT_GE(size.height, 1);
      EXPECT_LE(int64_t{size.width} * size.height, most) << width << " x " << height;
    }
  }
}

// What encoders are given, back as a picture.
class InputCopyTest : public ::testing::TestWithParam<Fit> {};

TEST_P(InputCopyTest, ShowsThePictureAgain) {
  ImageTransform t;
  t.size = 64;
  t.fit = GetParam();
  t.longest_side = 64;
  t.factor = 4;
  t.min_pixels = 16;
  t.max_pixels = 64 * 64;
  if (t.fit == Fit::kMultiples || t.fit == Fit::kLongest) t.size = 0;
  const std::vector<uint8_t> pixels = Halves(160, 80);
  std::vector<float> input(static_cast<size_t>(InputFloats(t)));
  Ledger ledger(1 << 24);
  ASSERT_TRUE(Preprocess({pixels.data(), 160, 80}, t, ledger, input.data()).ok());
  const int64_t most = MostPixelsOf(t, 1 << 20);
  EXPECT_EQ(MostPixelsOf(t, 100), 100);
  std::vector<uint8_t> copy(static_cast<size_t>(3 * most));
  const PictureSize size = CopySmall(input.data(), t, {160, 80}, most, copy.data());
  EXPECT_LE(int64_t{size.width} * size.height, most);
  const double ratio = static_cast<double>(size.width) / size.height;
  EXPECT_NEAR(ratio, t.fit == Fit::kCrop ? 1 : 2, 0.1);
  ExpectHalves(copy, size, 12);
}
INSTANTIATE_TEST_SUITE_P(Fits, InputCopyTest,
                         ::testing::Values(Fit::kCrop, Fit::kPad, Fit::kStretch, Fit::kMultiples, Fit::kSplit,
                                           Fit::kLongest));

}  // namespace
}  // namespace weir
