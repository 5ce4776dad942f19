// SPDX-License-Identifier: Apache-2.0
// TQ1_0: 256 values -d, 0 or d, five to a byte. A byte is the five base-3 digits of a number below 243 as a fraction of
// 256, rounded up: multiplying by 3 carries the next digit out of its eight bits. value = d * (digit - 1). Digit n of
// byte m of the first 32 is value 32 n + m; of the next 16, value 160 + 16 n + m; the last four hold four digits each,
// value 240 + 4 n + m.
#pragma once

#include <cstdint>

#include "quant/codes.h"
#include "quant/format.h"

namespace weir {

struct BlockTQ1_0 {
  static constexpr int kElements = 256;
  static constexpr CodeLayout kCodes = {};
  uint8_t qs[48];
  uint8_t qh[4];
  uint16_t d;  // F16 scale
};
static_assert(sizeof(BlockTQ1_0) == 54);

extern const QuantFormat kTQ1_0Format;

}  // namespace weir
