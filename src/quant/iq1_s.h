// SPDX-License-Identifier: Apache-2.0
// IQ1_S: 256 values in 8 groups of 32, each of four points of a grid of 2048 points in eight dimensions (quant/grids.h)
// whose coordinates are -1, 0 and 1, a scale of three bits and a shift of all its values.
// scale = d * (2 s + 1); value = scale * (coordinate + shift), the shift 0.125 or -0.125.
#pragma once

#include <cstdint>

#include "quant/codes.h"
#include "quant/format.h"

namespace weir {

struct BlockIQ1_S {
  static constexpr int kElements = 256;
  static constexpr CodeLayout kCodes = {};
  uint16_t d;      // F16 scale of the scales
  uint8_t qs[32];  // lower eight bits of the points' numbers
  uint16_t qh[8];  // for each group: four times the upper three bits, s, and whether the shift is negative
};
static_assert(sizeof(BlockIQ1_S) == 50);

extern const QuantFormat kIQ1_SFormat;

}  // namespace weir
