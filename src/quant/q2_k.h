// SPDX-License-Identifier: Apache-2.0
// Q2_K: 256 two-bit codes in 16 groups of 16, each with a four-bit scale and minimum.
// value = (d * scale) * code - dmin * minimum, each product rounded to binary32 first.
// The codes are those of Q3_K without its third bits.
#pragma once

#include <cstdint>

#include "quant/block.h"
#include "quant/codes.h"
#include "quant/format.h"
#include "quant/k_search.h"

namespace weir {

struct BlockQ2_K {
  static constexpr int kElements = kSuperElements;
  static constexpr CodeLayout kCodes = {};  // minimums of half a block of 32
  static constexpr int kGroupElements = 16;
  static constexpr int kGroups = kElements / kGroupElements;
  static constexpr int kQuarter = 32;
  uint8_t scales[kGroups];    // scale in the low nibble, minimum in the high one
  uint8_t qs[kElements / 4];  // codes: quarter q of half h at bit 2q of the half's 32 bytes
  uint16_t d;                 // F16 scale of the scales
  uint16_t dmin;              // F16 scale of the minimums
};
static_assert(sizeof(BlockQ2_K) == 84);

inline void DecodeQ2_K(const BlockQ2_K& block, float* out) {
  const float d = F16ToF32(block.d), dmin = F16ToF32(block.dmin);
  for (int e = 0; e < BlockQ2_K::kElements; ++e) {
    const uint8_t pair = block.scales[e / BlockQ2_K::kGroupElements];
    const int half = e / 128, quarter = e / BlockQ2_K::kQuarter % 4, i = e % BlockQ2_K::kQuarter;
    const float scale = d * static_cast<float>(pair & 0x0f), minimum = dmin * static_cast<float>(pair >> 4);
    out[e] = scale * static_cast<float>((block.qs[half * 32 + i] >> (quarter * 2)) & 3) - minimum;
  }
}

extern const QuantFormat kQ2_KFormat;

}  // namespace weir
