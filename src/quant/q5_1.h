// SPDX-License-Identifier: Apache-2.0
// Q5_1: 32 five-bit codes with a scale and a minimum. value = code * d + m.
// The low four bits are stored as in Q4_0; bit i of the 32-bit little-endian word qh is the fifth bit of element i.
#pragma once

#include <cstdint>

#include "quant/block.h"
#include "quant/codes.h"
#include "quant/format.h"

namespace weir {

struct BlockQ5_1 {
  static constexpr int kElements = 32;
  static constexpr CodeLayout kCodes = {.bits = 5, .scales = ScaleKind::kHalfMin};
  uint16_t d;                 // F16 scale
  uint16_t m;                 // F16 minimum
  uint8_t qh[kElements / 8];  // fifth bits
  uint8_t qs[kElements / 2];  // low four bits
};
static_assert(sizeof(BlockQ5_1) == 24);

inline void DecodeQ5_1(const BlockQ5_1& block, float* out) {
  constexpr int kHalf = BlockQ5_1::kElements / 2;
  const float d = F16ToF32(block.d);
  const float m = F16ToF32(block.m);
  for (int i = 0; i < kHalf; ++i) {
    const int high_first = (block.qh[i / 8] >> (i % 8)) & 1;
    const int high_second = (block.qh[(i + kHalf) / 8] >> (i % 8)) & 1;
    out[i] = static_cast<float>((block.qs[i] & 0x0f) | high_first << 4) * d + m;
    out[i + kHalf] = static_cast<float>((block.qs[i] >> 4) | high_second << 4) * d + m;
  }
}

extern const QuantFormat kQ5_1Format;

}  // namespace weir
