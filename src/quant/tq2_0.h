// SPDX-License-Identifier: Apache-2.0
// TQ2_0: 256 values -d, 0 or d in two bits each. value = d * (code - 1).
// Bits 2n and 2n + 1 of byte 32 h + m are value 128 h + 32 n + m.
#pragma once

#include <cstdint>

#include "quant/codes.h"
#include "quant/format.h"

namespace weir {

struct BlockTQ2_0 {
  static constexpr int kElements = 256;
  static constexpr CodeLayout kCodes = {};
  uint8_t qs[64];
  uint16_t d;  // F16 scale
};
static_assert(sizeof(BlockTQ2_0) == 66);

extern const QuantFormat kTQ2_0Format;

}  // namespace weir
