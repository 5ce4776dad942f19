// SPDX-License-Identifier: Apache-2.0
// Q5_K: 256 five-bit codes in 8 groups of 32, each with a six-bit scale and minimum (packing: k_search.h). value = code
// * (d * scale) - (dmin * min), both products rounded to binary32 first.
// The low four bits are stored as in Q4_K; bit g of qh[i] is the fifth bit of element i of group g.
#pragma once

#include <cstdint>

#include "quant/block.h"
#include "quant/codes.h"
#include "quant/format.h"
#include "quant/k_search.h"

namespace weir {

struct BlockQ5_K {
  static constexpr int kElements = kSuperElements;
  static constexpr CodeLayout kCodes = {.bits = 5, .scales = ScaleKind::kSuper};
  uint16_t d;                         // F16 scale of the scales
  uint16_t dmin;                      // F16 scale of the minimums
  uint8_t scales[kPackedScaleBytes];  // 8 six-bit pairs
  uint8_t qh[kElements / 8];          // fifth bits
  uint8_t qs[kElements / 2];          // low four bits
};
static_assert(sizeof(BlockQ5_K) == 176);

inline void DecodeQ5_K(const BlockQ5_K& block, float* out) {
  const float d = F16ToF32(block.d);
  const float dmin = F16ToF32(block.dmin);
  for (int g = 0; g < kMinGroups; ++g) {
    const GroupScale pair = UnpackScale(block.scales, g);
    const float scale = d * static_cast<float>(pair.scale);
    const float min = dmin * static_cast<float>(pair.min);
    const uint8_t* qs = block.qs + g / 2 * kMinGroupElements;
    const int shift = g % 2 * 4;
    for (int i = 0; i < kMinGroupElements; ++i) {
      const int code = ((qs[i] >> shift) & 0x0f) | ((block.qh[i] >> g) & 1) << 4;
      out[g * kMinGroupElements + i] = scale * static_cast<float>(code) - min;
    }
  }
}

extern const QuantFormat kQ5_KFormat;

}  // namespace weir
