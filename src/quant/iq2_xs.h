// SPDX-License-Identifier: Apache-2.0
// IQ2_XS: 256 values as 32 points of a grid of 512 points in eight dimensions (quant/grids.h), with signs of which the
// eighth follows from the other seven, and a scale of four bits for two points.
// scale = (d * (s + 0.5)) * 0.25; value = scale * coordinate.
#pragma once

#include <cstdint>

#include "quant/codes.h"
#include "quant/format.h"

namespace weir {

struct BlockIQ2_XS {
  static constexpr int kElements = 256;
  static constexpr CodeLayout kCodes = {};
  uint16_t d;         // F16 scale of the scales
  uint16_t qs[32];    // a point's number in nine bits, signs in seven
  uint8_t scales[8];  // s, even pairs of points in low nibbles
};
static_assert(sizeof(BlockIQ2_XS) == 74);

extern const QuantFormat kIQ2_XSFormat;

}  // namespace weir
