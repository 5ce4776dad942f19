// SPDX-License-Identifier: Apache-2.0
// MXFP4: 32 numbers of four bits (a sign, two bits of exponent, one of mantissa) with a power of two as scale, as the
// Open Compute Project's microscaling formats have them. value = 2^(e - 128) * level, where the levels are twice the
// numbers: 0, 1, 2, 3, 4, 6, 8, 12 and their opposites.
// Element i (0 to 15) is the low nibble of byte i, element 16 + i its high nibble.
#pragma once

#include <cstdint>

#include "quant/block.h"
#include "quant/codes.h"
#include "quant/format.h"

namespace weir {

struct BlockMXFP4 {
  static constexpr int kElements = 32;
  static constexpr CodeLayout kCodes = {
      .bits = 4, .offset_log2 = 4, .scales = ScaleKind::kPower, .levels = LevelKind::kFloat4};
  uint8_t e;                  // exponent
  uint8_t qs[kElements / 2];  // codes; the upper eight are the opposites of the lower
};
static_assert(sizeof(BlockMXFP4) == 17);

inline void DecodeMXFP4(const BlockMXFP4& block, float* out) {
  const float d = PowerScale(block.e);
  for (int i = 0; i < BlockMXFP4::kElements / 2; ++i) {
    out[i] = d * static_cast<float>(kFloat4Levels[block.qs[i] & 0x0f]);
    out[i + BlockMXFP4::kElements / 2] = d * static_cast<float>(kFloat4Levels[block.qs[i] >> 4]);
  }
}

extern const QuantFormat kMXFP4Format;

}  // namespace weir
