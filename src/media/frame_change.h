// SPDX-License-Identifier: Apache-2.0
// Whether a frame shows something else than the last one that was used: frames of a still scene need not be read.
//
// A frame is compared by the mean colours of kSide x kSide fields of it, so that a camera's noise is no change and a
// small thing that moves is one.
#pragma once

#include <array>
#include <cstdint>

namespace weir {

class FrameChange {
 public:
  // A field that differs by more than `least` of 255 in any colour is a change; 0: any difference of the means is.
  // Frames that are max_gap_ms or more after the last one that was used are used, whatever they show. REQUIRES: both
  // are at least 0.
  FrameChange(double least, int64_t max_gap_ms) : least_(least), max_gap_ms_(max_gap_ms) {}

  // Whether to use the frame, which is then the last one that was used. RGB, rows from the top, no padding. REQUIRES:
  // at least one pixel.
  bool Use(const uint8_t* rgb, int32_t width, int32_t height, int64_t t_ms);

 private:
  static constexpr int32_t kSide = 16;
  using Means = std::array<float, int64_t{3} * kSide * kSide>;

  const double least_;
  const int64_t max_gap_ms_;
  bool any_ = false;
  Means last_{};
  int32_t width_ = 0, height_ = 0;
  int64_t last_ms_ = 0;
};

}  // namespace weir
