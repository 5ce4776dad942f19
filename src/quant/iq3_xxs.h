// SPDX-License-Identifier: Apache-2.0
// IQ3_XXS: 256 values in 8 groups of 32, each of eight points of a grid of 256 points in four dimensions
// (quant/grids.h), with signs of which every eighth follows from the seven before it. scale = (d * (s + 0.5)) * 0.5, s
// the upper four bits of a group's word; value = scale * coordinate.
#pragma once

#include <cstdint>

#include "quant/codes.h"
#include "quant/format.h"

namespace weir {

struct BlockIQ3_XXS {
  static constexpr int kElements = 256;
  static constexpr CodeLayout kCodes = {};
  uint16_t d;            // F16 scale of the scales
  uint8_t qs[64];        // the points' numbers
  uint16_t words[8][2];  // for each group, lower half first: four times seven bits of signs and s
};
static_assert(sizeof(BlockIQ3_XXS) == 98);

extern const QuantFormat kIQ3_XXSFormat;

}  // namespace weir
