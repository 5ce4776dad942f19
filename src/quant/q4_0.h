// SPDX-License-Identifier: Apache-2.0
// Q4_0: 32 four-bit codes with one scale. value = (code - 8) * d.
// Element i (0 to 15) is the low nibble of byte i, element 16 + i its high nibble.
#pragma once

#include <cstdint>

#include "quant/block.h"
#include "quant/codes.h"
#include "quant/format.h"

namespace weir {

struct BlockQ4_0 {
  static constexpr int kElements = 32;
  static constexpr CodeLayout kCodes = {.bits = 4, .offset_log2 = 3, .scales = ScaleKind::kHalf};
  uint16_t d;                 // F16 scale
  uint8_t qs[kElements / 2];  // codes
};
static_assert(sizeof(BlockQ4_0) == 18);

inline void DecodeQ4_0(const BlockQ4_0& block, float* out) {
  const float d = F16ToF32(block.d);
  for (int i = 0; i < BlockQ4_0::kElements / 2; ++i) {
    out[i] = static_cast<float>((block.qs[i] & 0x0f) - 8) * d;
    out[i + BlockQ4_0::kElements / 2] = static_cast<float>((block.qs[i] >> 4) - 8) * d;
  }
}

extern const QuantFormat kQ4_0Format;

}  // namespace weir
