// SPDX-License-Identifier: Apache-2.0
// IQ3_S: 256 values as 64 points of a grid of 512 points in four dimensions (quant/grids.h), with signs, and a scale of
// four bits for eight points. scale = d * (1 + 2 s); value = scale * coordinate.
#pragma once

#include <cstdint>

#include "quant/codes.h"
#include "quant/format.h"

namespace weir {

struct BlockIQ3_S {
  static constexpr int kElements = 256;
  static constexpr CodeLayout kCodes = {};
  uint16_t d;         // F16 scale of the scales
  uint8_t qs[64];     // lower eight bits of the points' numbers
  uint8_t qh[8];      // the ninth bits, eight to a byte
  uint8_t signs[32];  // a bit for each value
  uint8_t scales[4];  // s, even groups in low nibbles
};
static_assert(sizeof(BlockIQ3_S) == 110);

extern const QuantFormat kIQ3_SFormat;

}  // namespace weir
