// SPDX-License-Identifier: Apache-2.0
// Q4_1: 32 four-bit codes with a scale and a minimum. value = code * d + m.
// Element i (0 to 15) is the low nibble of byte i, element 16 + i its high nibble.
#pragma once

#include <cstdint>

#include "quant/block.h"
#include "quant/codes.h"
#include "quant/format.h"

namespace weir {

struct BlockQ4_1 {
  static constexpr int kElements = 32;
  static constexpr CodeLayout kCodes = {.bits = 4, .scales = ScaleKind::kHalfMin};
  uint16_t d;                 // F16 scale
  uint16_t m;                 // F16 minimum
  uint8_t qs[kElements / 2];  // codes
};
static_assert(sizeof(BlockQ4_1) == 20);

inline void DecodeQ4_1(const BlockQ4_1& block, float* out) {
  const float d = F16ToF32(block.d);
  const float m = F16ToF32(block.m);
  for (int i = 0; i < BlockQ4_1::kElements / 2; ++i) {
    out[i] = static_cast<float>(block.qs[i] & 0x0f) * d + m;
    out[i + BlockQ4_1::kElements / 2] = static_cast<float>(block.qs[i] >> 4) * d + m;
  }
}

extern const QuantFormat kQ4_1Format;

}  // namespace weir
