// SPDX-License-Identifier: Apache-2.0
// NVFP4: 64 numbers of four bits as in MXFP4, in groups of 16 with a scale of four bits of exponent and three of
// mantissa. value = scale * level, the scale half of what its bits say: (1 + m / 8) 2^(e - 7), or m 2^-9 where e is 0.
// The scale 0x7f is no number and decodes to 0; the eighth bit is not read. Of a group's eight bytes the low nibbles
// are its first eight values, the high nibbles the others.
#pragma once

#include <cstdint>

#include "quant/codes.h"
#include "quant/format.h"

namespace weir {

struct BlockNVFP4 {
  static constexpr int kElements = 64;
  static constexpr CodeLayout kCodes = {
      .bits = 4, .offset_log2 = 4, .scales = ScaleKind::kHalves, .levels = LevelKind::kFloat4};
  uint8_t scales[4];
  uint8_t qs[32];
};
static_assert(sizeof(BlockNVFP4) == 36);

extern const QuantFormat kNVFP4Format;

}  // namespace weir
