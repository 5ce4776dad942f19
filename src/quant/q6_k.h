// SPDX-License-Identifier: Apache-2.0
// Q6_K: 256 six-bit codes in 16 groups of 16, each with a signed eight-bit scale.
// value = (code - 32) * (d * scale), the product d * scale rounded to binary32 first.
// Each half of the block (128 elements, four quarters of 32) has 64 bytes of low nibbles and 32 of upper bits:
// element i of quarter q has its low nibble in ql[i + 32 * (q % 2)], low nibbles of the bytes for q < 2 and high ones
// for the others, and its upper two bits at bit 2q of qh[i].
#pragma once

#include <cstdint>

#include "quant/block.h"
#include "quant/codes.h"
#include "quant/format.h"
#include "quant/k_search.h"

namespace weir {

struct BlockQ6_K {
  static constexpr int kElements = kSuperElements;
  static constexpr CodeLayout kCodes = {.bits = 6, .offset_log2 = 5, .scales = ScaleKind::kSuper16};
  static constexpr int kGroupElements = 16;
  static constexpr int kQuarter = 32;
  uint8_t ql[kElements / 2];                  // low four bits
  uint8_t qh[kElements / 4];                  // upper two bits
  int8_t scales[kElements / kGroupElements];  // group scales
  uint16_t d;                                 // F16 scale of the scales
};
static_assert(sizeof(BlockQ6_K) == 210);

inline void DecodeQ6_K(const BlockQ6_K& block, float* out) {
  const float d = F16ToF32(block.d);
  for (int first = 0; first < BlockQ6_K::kElements; first += BlockQ6_K::kQuarter) {
    const int half = first / 128;
    const int quarter = first / BlockQ6_K::kQuarter % 4;
    const uint8_t* ql = block.ql + half * 64 + quarter % 2 * BlockQ6_K::kQuarter;
    const uint8_t* qh = block.qh + half * 32;
    for (int i = 0; i < BlockQ6_K::kQuarter; ++i) {
      const int code = ((ql[i] >> (quarter / 2 * 4)) & 0x0f) | ((qh[i] >> (quarter * 2)) & 3) << 4;
      const float scale = d * static_cast<float>(block.scales[(first + i) / BlockQ6_K::kGroupElements]);
      out[first + i] = scale * static_cast<float>(code - 32);
    }
  }
}

extern const QuantFormat kQ6_KFormat;

}  // namespace weir
