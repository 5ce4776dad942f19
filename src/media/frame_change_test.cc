// SPDX-License-Identifier: Apache-2.0
#include "media/frame_change.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace weir {
namespace {

struct Picture {
  int32_t width, height;
  std::vector<uint8_t> rgb;
  Picture(int32_t w, int32_t h, uint8_t shade) : width(w), height(h), rgb(static_cast<size_t>(3 * w * h), shade) {}
  // A square of another shade.
  Picture With(int32_t left, int32_t top, int32_t side, uint8_t shade) const {
    Picture out = *this;
    for (int32_t y = top; y < top + side; ++y) {
      for (int32_t x = left; x < left + side; ++x) {
        std::fill_n(out.rgb.begin() + 3 * (int64_t{y} * width + x), 3, shade);
      }
    }
    return out;
  }
};

bool Use(FrameChange* change, const Picture& picture, int64_t t_ms) {
  return change->Use(picture.rgb.data(), picture.width, picture.height, t_ms);
}

TEST(FrameChange, EqualFramesAreLeftOutForALimitedTime) {
  FrameChange change(0, 10000);
  const Picture grey(64, 48, 100);
  EXPECT_TRUE(Use(&change, grey, 0));
  for (int64_t t = 1000; t < 10000; t += 1000) EXPECT_FALSE(Use(&change, grey, t)) << t;
  EXPECT_TRUE(Use(&change, grey, 10000));
  EXPECT_FALSE(Use(&change, grey, 19999));
  EXPECT_TRUE(Use(&change, grey, 20000));
}

TEST(FrameChange, ASmallThingIsAChangeAndNoiseIsNone) {
  FrameChange change(3, 1 << 30);
  const Picture grey(64, 48, 100);
  EXPECT_TRUE(Use(&change, grey, 0));
  Picture noisy = grey;
  for (size_t i = 0; i < noisy.rgb.size(); ++i) noisy.rgb[i] = static_cast<uint8_t>(100 + (i * 7919 % 9) - 4);
  EXPECT_FALSE(Use(&change, noisy, 1));
  const Picture thing = grey.With(20, 20, 4, 220);
  EXPECT_TRUE(Use(&change, thing, 2));
  EXPECT_FALSE(Use(&change, thing, 3));
  EXPECT_TRUE(Use(&change, grey, 4)) << "it is gone";
}

// Each step is below the threshold: frames are compared with the last one that was used, not with the one before.
TEST(FrameChange, SlowChangesAddUp) {
  FrameChange change(3, 1 << 30);
  int n_used = 0;
  for (int i = 0; i <= 40; ++i) n_used += Use(&change, Picture(32, 32, static_cast<uint8_t>(100 + i)), i);
  EXPECT_EQ(n_used, 11);
}

TEST(FrameChange, OddSizes) {
  FrameChange change(3, 1 << 30);
  EXPECT_TRUE(Use(&change, Picture(1, 1, 10), 0));
  EXPECT_FALSE(Use(&change, Picture(1, 1, 10), 1));
  EXPECT_TRUE(Use(&change, Picture(5, 3, 10), 2)) << "another size";
  EXPECT_FALSE(Use(&change, Picture(5, 3, 10), 3));
  EXPECT_TRUE(Use(&change, Picture(5, 3, 10).With(4, 2, 1, 90), 4));
}

}  // namespace
}  // namespace weir
