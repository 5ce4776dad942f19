// SPDX-License-Identifier: Apache-2.0
// IQ2_XXS: 256 values in 8 groups of 32, each of four points of a grid of 256 points in eight dimensions
// (quant/grids.h), with signs of which the eighth follows from the other seven. scale = (d * (s + 0.5)) * 0.25, s the
// upper four bits of a group's second word; value = scale * coordinate.
#pragma once

#include <cstdint>

#include "quant/codes.h"
#include "quant/format.h"

namespace weir {

struct BlockIQ2_XXS {
  static constexpr int kElements = 256;
  static constexpr CodeLayout kCodes = {};
  uint16_t d;         // F16 scale of the scales
  uint16_t qs[8][4];  // for each group: four points' numbers in bytes; four times seven bits of signs and s
};
static_assert(sizeof(BlockIQ2_XXS) == 66);

extern const QuantFormat kIQ2_XXSFormat;

}  // namespace weir
