// SPDX-License-Identifier: Apache-2.0
// Panels of weights that are integer codes with scales (quant/codes.h): the layout, and the products on it.
//
// Inside a panel everything is stored in the order in which a product walks along k, so that a pass over a matrix reads
// memory sequentially: [n_blocks][code bytes], followed by the scales. Padding rows of the last panel are zero.
//
// The codes of one block of 32 along k:
// - 8 bits: 8 groups of 64 bytes; byte 4 * col + i of group g is the code of k = 4 g + i (the order of VNNI
//   instructions);
// - 4 bits: 4 x 64 bytes; vector g holds group g in its low and group g + 4 in its high nibbles;
// - 5 bits: as 4 bits, then 8 words of 64 bits: bit 4 * col + i of word g is the fifth bit of that byte of group g;
// - 6 bits: as 4 bits, then 2 x 64 bytes: bits 2 j, 2 j + 1 of a byte of vector h are the upper bits of group 4 h + j.
//
// The scales of a panel, by ScaleKind:
// - kHalf      [n_blocks] of d[16] (F16)
// - kHalfMin   [n_blocks] of d[16], m[16] (F16)
// - kSuper     per 256 along k: d[16], m[16] (F16), then 8 blocks of sub[0][16], sub[1][16] (u8)
// - kSuper16   per 256 along k: d[16] (F16), then 8 blocks of sub[0][16], sub[1][16] (s8)
// These are the file's numbers, regrouped: decoding a packed row gives the same bits as decoding the file's row.
#pragma once

#include <cstdint>

#include "backend/cpu/weights.h"
#include "quant/block_formats.h"
#include "quant/mxfp4.h"

namespace weir::cpu {

inline constexpr int kSuperBlocks = 8;  // blocks of 32 in a block of 256

struct PackLayout : CodeLayout {
  constexpr int64_t code_bytes() const { return int64_t{bits} * 64; }  // of one block of 32 x 16
  constexpr int64_t super_bytes() const { return (has_addend() ? 64 : 32) + kSuperBlocks * 32; }
  constexpr int64_t scale_bytes(int64_t n_blocks) const {
    return has_sub() ? n_blocks / kSuperBlocks * super_bytes() : n_blocks * (has_addend() ? 64 : 32);
  }
};

constexpr PackLayout LayoutOf(DType type) { return {CodesOf(type)}; }

// In place of a number of bits: codes of 4 that stand for MXFP4's levels (quant/mxfp4.h) plus an offset of 16, for
// kernels that look them up (mxfp4_weights.cc).
inline constexpr int kLevelBits = 20;
inline constexpr int kLevelOffsetLog2 = 4;

// The code of column `col` at k (0 .. 31) of a packed block.
inline int GetCode(int bits, const uint8_t* in, int col, int k) {
  const int group = k / 4, byte = 4 * col + k % 4;
  if (bits == 8) return in[group * 64 + byte];
  const int low = in[group % 4 * 64 + byte] >> (group < 4 ? 0 : 4) & 15;
  if (bits == 5) return low | (in[256 + group * 8 + byte / 8] >> (byte % 8) & 1) << 4;
  if (bits == kLevelBits) return kMxfp4Levels[low] + (1 << kLevelOffsetLog2);
  if (bits == 6) return low | (in[256 + group / 4 * 64 + byte] >> (2 * (group % 4)) & 3) << 4;
  return low;
}

// Uses the machine's widest instructions (coded_product.cc).
void CodedProduct(const ProductArgs& args);

}  // namespace weir::cpu
