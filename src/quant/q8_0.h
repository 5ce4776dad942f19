// SPDX-License-Identifier: Apache-2.0
// Q8_0: 32 signed bytes with one scale. value = code * d.
#pragma once

#include <cstdint>

#include "quant/block.h"
#include "quant/codes.h"
#include "quant/format.h"

namespace weir {

struct BlockQ8_0 {
  static constexpr int kElements = 32;
  static constexpr CodeLayout kCodes = {.bits = 8, .offset_log2 = 7, .scales = ScaleKind::kHalf};
  uint16_t d;            // F16 scale
  int8_t qs[kElements];  // codes, -127 to 127 from our encoder; -128 is read as written
};
static_assert(sizeof(BlockQ8_0) == 34);

inline void DecodeQ8_0(const BlockQ8_0& block, float* out) {
  const float d = F16ToF32(block.d);
  for (int i = 0; i < BlockQ8_0::kElements; ++i) out[i] = static_cast<float>(block.qs[i]) * d;
}

extern const QuantFormat kQ8_0Format;

}  // namespace weir
