// SPDX-License-Identifier: Apache-2.0
// Q5_0: 32 five-bit codes with one scale. value = (code - 16) * d.
// The low four bits are stored as in Q4_0; bit i of the 32-bit little-endian word qh is the fifth bit of element i.
#pragma once

#include <cstdint>

#include "quant/block.h"
#include "quant/codes.h"
#include "quant/format.h"

namespace weir {

struct BlockQ5_0 {
  static constexpr int kElements = 32;
  static constexpr CodeLayout kCodes = {.bits = 5, .offset_log2 = 4, .scales = ScaleKind::kHalf};
  uint16_t d;                 // F16 scale
  uint8_t qh[kElements / 8];  // fifth bits
  uint8_t qs[kElements / 2];  // low four bits
};
static_assert(sizeof(BlockQ5_0) == 22);

inline void DecodeQ5_0(const BlockQ5_0& block, float* out) {
  constexpr int kHalf = BlockQ5_0::kElements / 2;
  const float d = F16ToF32(block.d);
  for (int i = 0; i < kHalf; ++i) {
    const int high_first = (block.qh[i / 8] >> (i % 8)) & 1;
    const int high_second = (block.qh[(i + kHalf) / 8] >> (i % 8)) & 1;
    out[i] = static_cast<float>(((block.qs[i] & 0x0f) | high_first << 4) - 16) * d;
    out[i + kHalf] = static_cast<float>(((block.qs[i] >> 4) | high_second << 4) - 16) * d;
  }
}

extern const QuantFormat kQ5_0Format;

}  // namespace weir
