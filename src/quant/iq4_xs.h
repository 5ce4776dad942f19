// SPDX-License-Identifier: Apache-2.0
// IQ4_XS: 256 codes of IQ4_NL's levels in 8 groups of 32, each with a signed six-bit scale.
// value = (d * scale) * level, the product d * scale rounded to binary32 first. A group's codes are as in IQ4_NL.
#pragma once

#include <cstdint>

#include "quant/block.h"
#include "quant/codes.h"
#include "quant/format.h"

namespace weir {

struct BlockIQ4_XS {
  static constexpr int kElements = 256;
  static constexpr CodeLayout kCodes = {
      .bits = 4, .offset_log2 = 7, .scales = ScaleKind::kSuper32, .levels = LevelKind::kIq4};
  static constexpr int kGroupElements = 32;
  static constexpr int kGroups = kElements / kGroupElements;
  uint16_t d;                     // F16 scale of the scales
  uint16_t scales_h;              // upper two bits of scale g, with 32 added, at bit 2g
  uint8_t scales_l[kGroups / 2];  // low four bits: even groups in low nibbles
  uint8_t qs[kElements / 2];      // codes
};
static_assert(sizeof(BlockIQ4_XS) == 136);

inline int ScaleIQ4_XS(const BlockIQ4_XS& block, int g) {
  const int low = (block.scales_l[g / 2] >> (g % 2 * 4)) & 0x0f;
  return (low | ((block.scales_h >> (g * 2)) & 3) << 4) - 32;
}

inline void DecodeIQ4_XS(const BlockIQ4_XS& block, float* out) {
  constexpr int n = BlockIQ4_XS::kGroupElements;
  const float d = F16ToF32(block.d);
  for (int g = 0; g < BlockIQ4_XS::kGroups; ++g, out += n) {
    const float scale = d * static_cast<float>(ScaleIQ4_XS(block, g));
    for (int i = 0; i < n; ++i) {
      const uint8_t byte = block.qs[g * n / 2 + i % (n / 2)];
      out[i] = scale * static_cast<float>(kIq4Levels[(byte >> (i / (n / 2) * 4)) & 0x0f]);
    }
  }
}

extern const QuantFormat kIQ4_XSFormat;

}  // namespace weir
