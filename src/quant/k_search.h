// SPDX-License-Identifier: Apache-2.0
// Scale search shared by the encoders of the K formats, whose blocks of 256 elements hold 8 or 16 groups with small
// integer scales of their own. Not for use outside this folder.
//
// Each group is fitted by weighted least squares: codes and scale are chosen in turn for a range of starting scales,
// and the pair with the smallest error wins. An element's weight is its magnitude plus the group's root mean square,
// because an error matters in proportion to the activations it is multiplied with, and magnitude is a rough predictor
// of them.
#pragma once

#include <cstdint>

#include "quant/codes.h"

namespace weir {

inline constexpr int kSuperElements = 256;  // elements of a K block
inline constexpr int kMinGroups = 8;        // groups of a Q4_K or Q5_K block
inline constexpr int kMinGroupElements = kSuperElements / kMinGroups;
inline constexpr int kPackedScaleBytes = 12;

// Scale and minimum of a group: six bits each; value = code * (d * scale) - dmin * min.
struct GroupScale {
  int scale;
  int min;
};

// The 8 pairs of a Q4_K or Q5_K block in 12 bytes. Bytes 0-3: scales 0-3 in the low six bits; bytes 4-7: minimums 0-3;
// bytes 8-11: low nibbles of scales 4-7 and, above them, of minimums 4-7, whose upper two bits are the upper two bits
// of bytes 0-3 and 4-7.
inline GroupScale UnpackScale(const uint8_t* packed, int group) {
  if (group < 4) return {packed[group] & 63, packed[group + 4] & 63};
  return {(packed[group + 4] & 0x0f) | ((packed[group - 4] >> 6) << 4),
          (packed[group + 4] >> 4) | ((packed[group] >> 6) << 4)};
}
void PackScale(GroupScale value, int group, uint8_t* packed);

// Group g of a Q4_K or Q5_K block: its low nibbles, scale and minimum.
template <typename Block>
void ReadMinGroup(const Block& block, int g, CodeBlock* out) {
  for (int i = 0; i < kCodeBlock; ++i) {
    out->code[i] = (block.qs[g / 2 * kMinGroupElements + i] >> (g % 2 * 4)) & 0x0f;
  }
  const GroupScale pair = UnpackScale(block.scales, g);
  out->sub[0] = static_cast<uint8_t>(pair.scale);
  out->sub[1] = static_cast<uint8_t>(pair.min);
  out->d = block.d;
  out->m = block.dmin;
}

// Everything a Q4_K or Q5_K block stores, before the codes are packed.
struct MinBlock {
  uint16_t d = 0;     // F16 scale of the scales
  uint16_t dmin = 0;  // F16 scale of the minimums
  uint8_t scales[kPackedScaleBytes] = {};
  uint8_t codes[kSuperElements] = {};  // 0 to max_code
};
// REQUIRES: all 256 values are finite.
MinBlock SearchMinBlock(const float* in, int max_code);

// The best scale for n values as scale * code, code from -max_code to max_code - 1.
float SearchSymmetricScale(const float* in, int n, int max_code);

}  // namespace weir
