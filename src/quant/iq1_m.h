// SPDX-License-Identifier: Apache-2.0
// IQ1_M: as IQ1_S with a scale of three bits for two points and a shift for each; the scale of the scales is spread
// over four words. scale = d * (2 s + 1); value = scale * (coordinate + shift), the shift 0.125 or -0.125.
#pragma once

#include <cstdint>

#include "quant/codes.h"
#include "quant/format.h"

namespace weir {

struct BlockIQ1_M {
  static constexpr int kElements = 256;
  static constexpr CodeLayout kCodes = {};
  uint8_t qs[32];      // lower eight bits of the points' numbers
  uint8_t qh[16];      // a nibble for each point, even ones low: upper three bits, and whether the shift is negative
  uint16_t scales[4];  // four times s for two points; the upper four bits are a quarter of the F16 d, the lowest first
};
static_assert(sizeof(BlockIQ1_M) == 56);

extern const QuantFormat kIQ1_MFormat;

}  // namespace weir
