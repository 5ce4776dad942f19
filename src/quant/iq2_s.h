// SPDX-License-Identifier: Apache-2.0
// IQ2_S: 256 values as 32 points of a grid of 1024 points in eight dimensions (quant/grids.h), with eight signs each
// and a scale of four bits for two points. scale = (d * (s + 0.5)) * 0.25; value = scale * coordinate.
#pragma once

#include <cstdint>

#include "quant/codes.h"
#include "quant/format.h"

namespace weir {

struct BlockIQ2_S {
  static constexpr int kElements = 256;
  static constexpr CodeLayout kCodes = {};
  uint16_t d;         // F16 scale of the scales
  uint8_t qs[32];     // lower eight bits of the points' numbers
  uint8_t signs[32];  // bit i: value i of a point is negative
  uint8_t qh[8];      // upper two bits of the points' numbers, four to a byte
  uint8_t scales[8];  // s, even pairs of points in low nibbles
};
static_assert(sizeof(BlockIQ2_S) == 82);

extern const QuantFormat kIQ2_SFormat;

}  // namespace weir
