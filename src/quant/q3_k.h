// SPDX-License-Identifier: Apache-2.0
// Q3_K: 256 three-bit codes in 16 groups of 16, each with a signed six-bit scale.
// value = (d * scale) * (code - 4), the product d * scale rounded to binary32 first.
// Element e of half h (128 elements, four quarters of 32): with i = e % 32 and quarter q, its low two bits are at bit
// 2q of qs[32h + i], its third at bit 4h + q of hmask[i].
#pragma once

#include <cstdint>

#include "quant/block.h"
#include "quant/codes.h"
#include "quant/format.h"
#include "quant/k_search.h"

namespace weir {

struct BlockQ3_K {
  static constexpr int kElements = kSuperElements;
  static constexpr CodeLayout kCodes = {.bits = 4, .offset_log2 = 2, .scales = ScaleKind::kSuper16};
  static constexpr int kGroupElements = 16;
  static constexpr int kGroups = kElements / kGroupElements;
  static constexpr int kQuarter = 32;
  uint8_t hmask[kElements / 8];  // third bits
  uint8_t qs[kElements / 4];     // low two bits
  uint8_t scales[12];            // of the groups, with 32 added: low nibbles first, then upper two bits
  uint16_t d;                    // F16 scale of the scales
};
static_assert(sizeof(BlockQ3_K) == 110);

// The scale of group g. Its low four bits are in byte g % 8, low nibbles for the first eight groups and high ones for
// the others; its upper two at bit 2 (g / 4) of byte 8 + g % 4.
inline int ScaleQ3_K(const uint8_t* scales, int g) {
  const int low = (scales[g % 8] >> (g / 8 * 4)) & 0x0f;
  return (low | ((scales[8 + g % 4] >> (g / 4 * 2)) & 3) << 4) - 32;
}

inline int CodeQ3_K(const BlockQ3_K& block, int e) {
  const int half = e / 128, quarter = e / BlockQ3_K::kQuarter % 4, i = e % BlockQ3_K::kQuarter;
  const int low = (block.qs[half * 32 + i] >> (quarter * 2)) & 3;
  return low | ((block.hmask[i] >> (half * 4 + quarter)) & 1) << 2;
}

inline void DecodeQ3_K(const BlockQ3_K& block, float* out) {
  const float d = F16ToF32(block.d);
  for (int e = 0; e < BlockQ3_K::kElements; ++e) {
    const float scale = d * static_cast<float>(ScaleQ3_K(block.scales, e / BlockQ3_K::kGroupElements));
    out[e] = scale * static_cast<float>(CodeQ3_K(block, e) - 4);
  }
}

extern const QuantFormat kQ3_KFormat;

}  // namespace weir
