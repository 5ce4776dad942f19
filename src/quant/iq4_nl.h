// SPDX-License-Identifier: Apache-2.0
// IQ4_NL: 32 four-bit codes that stand for unevenly spaced levels (codes.h), with a scale. value = d * level.
// Element i (0 to 15) is the low nibble of byte i, element 16 + i its high nibble.
#pragma once

#include <cstdint>

#include "quant/block.h"
#include "quant/codes.h"
#include "quant/format.h"

namespace weir {

struct BlockIQ4_NL {
  static constexpr int kElements = 32;
  static constexpr CodeLayout kCodes = {
      .bits = 4, .offset_log2 = 7, .scales = ScaleKind::kHalf, .levels = LevelKind::kIq4};
  uint16_t d;                 // F16 scale
  uint8_t qs[kElements / 2];  // codes
};
static_assert(sizeof(BlockIQ4_NL) == 18);

inline void DecodeIQ4_NL(const BlockIQ4_NL& block, float* out) {
  const float d = F16ToF32(block.d);
  for (int i = 0; i < BlockIQ4_NL::kElements / 2; ++i) {
    out[i] = d * static_cast<float>(kIq4Levels[block.qs[i] & 0x0f]);
    out[i + BlockIQ4_NL::kElements / 2] = d * static_cast<float>(kIq4Levels[block.qs[i] >> 4]);
  }
}

extern const QuantFormat kIQ4_NLFormat;

}  // namespace weir
