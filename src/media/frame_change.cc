// SPDX-License-Identifier: Apache-2.0
#include "media/frame_change.h"

#include <algorithm>
#include <cmath>

namespace weir {

bool FrameChange::Use(const uint8_t* rgb, int32_t width, int32_t height, int64_t t_ms) {
  Means means{};
  for (int32_t y = 0; y < kSide; ++y) {
    // Every field has a pixel, in pictures smaller than the grid the same as its neighbour.
    const int64_t top = int64_t{height} * y / kSide, bottom = std::max(top + 1, int64_t{height} * (y + 1) / kSide);
    for (int32_t x = 0; x < kSide; ++x) {
      const int64_t left = int64_t{width} * x / kSide, right = std::max(left + 1, int64_t{width} * (x + 1) / kSide);
      int64_t sums[3] = {};
      for (int64_t row = top; row < bottom; ++row) {
        const uint8_t* at = rgb + 3 * (row * width + left);
        for (int64_t i = 0; i < right - left; ++i, at += 3) {
          for (int c = 0; c < 3; ++c) sums[c] += at[c];
        }
      }
      const auto n = static_cast<float>((bottom - top) * (right - left));
      const size_t field = static_cast<size_t>(y) * kSide + static_cast<size_t>(x);
      for (size_t c = 0; c < 3; ++c) means[3 * field + c] = static_cast<float>(sums[c]) / n;
    }
  }
  const bool due = !any_ || width != width_ || height != height_ || t_ms - last_ms_ >= max_gap_ms_;
  const bool differs = !std::equal(means.begin(), means.end(), last_.begin(),
                                   [this](float a, float b) { return !(std::abs(a - b) > least_); });
  if (!due && !differs) return false;
  any_ = true;
  last_ = means;
  width_ = width;
  height_ = height;
  last_ms_ = t_ms;
  return true;
}

}  // namespace weir
