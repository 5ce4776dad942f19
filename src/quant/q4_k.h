// SPDX-License-Identifier: Apache-2.0
// Q4_K: 256 four-bit codes in 8 groups of 32, each with a six-bit scale and minimum (packing: k_search.h).
// value = code * (d * scale) - (dmin * min), both products rounded to binary32 first.
// 32 bytes of codes serve two groups: the low nibbles are group 2j, the high nibbles group 2j + 1.
#pragma once

#include <cstdint>

#include "quant/block.h"
#include "quant/codes.h"
#include "quant/format.h"
#include "quant/k_search.h"

namespace weir {

struct BlockQ4_K {
  static constexpr int kElements = kSuperElements;
  static constexpr CodeLayout kCodes = {.bits = 4, .scales = ScaleKind::kSuper};
  uint16_t d;                         // F16 scale of the scales
  uint16_t dmin;                      // F16 scale of the minimums
  uint8_t scales[kPackedScaleBytes];  // 8 six-bit pairs
  uint8_t qs[kElements / 2];          // codes
};
static_assert(sizeof(BlockQ4_K) == 144);

inline void DecodeQ4_K(const BlockQ4_K& block, float* out) {
  const float d = F16ToF32(block.d);
  const float dmin = F16ToF32(block.dmin);
  for (int g = 0; g < kMinGroups; ++g) {
    const GroupScale pair = UnpackScale(block.scales, g);
    const float scale = d * static_cast<float>(pair.scale);
    const float min = dmin * static_cast<float>(pair.min);
    const uint8_t* qs = block.qs + g / 2 * kMinGroupElements;
    const int shift = g % 2 * 4;
    for (int i = 0; i < kMinGroupElements; ++i) {
      out[g * kMinGroupElements + i] = scale * static_cast<float>((qs[i] >> shift) & 0x0f) - min;
    }
  }
}

extern const QuantFormat kQ4_KFormat;

}  // namespace weir
