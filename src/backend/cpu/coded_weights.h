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
// - 5 bits: as 4 bits, then 64 bytes: bit g of byte 4 * col + i is the fifth bit of that byte of group g;
// - 6 bits: as 4 bits, then 2 x 64 bytes: bits 2 j, 2 j + 1 of a byte of vector h are the upper bits of group 4 h + j.
//
// The scales of a panel, by ScaleKind:
// - kHalf      [n_blocks] of d[16] (F16)
// - kHalfMin   [n_blocks] of d[16], m[16] (F16)
// - kSuper     per 256 along k: d[16], m[16] (F16), then 8 blocks of sub[0][16], sub[1][16] (u8)
// - kSuper16   per 256 along k: d[16] (F16), then 8 blocks of sub[0][16], sub[1][16] (s8)
// - kSuper32   per 256 along k: d[16] (F16), then 8 blocks of sub[0][16] (s8)
// - kHalves    [n_blocks] of d[16], m[16] (F16)
// - kPower     [n_blocks] of sub[0][16] (u8)
// These are the file's numbers, regrouped: decoding a packed row gives the same bits as decoding the file's row.
#pragma once

#include <cstdint>

#include "backend/cpu/weights.h"
#include "quant/block_formats.h"

namespace weir::cpu {

inline constexpr int kSuperBlocks = 8;  // blocks of 32 in a block of 256

struct PackLayout : CodeLayout {
  constexpr int64_t code_bytes() const { return int64_t{bits} * 64; }                      // of one block of 32 x 16
  constexpr int64_t sub_bytes() const { return scales == ScaleKind::kSuper32 ? 16 : 32; }  // of a block
  constexpr int64_t super_bytes() const { return (has_addend() ? 64 : 32) + kSuperBlocks * sub_bytes(); }
  // Of a block, where no numbers are shared.
  constexpr int64_t own_bytes() const {
    return scales == ScaleKind::kPower ? 16 : scales == ScaleKind::kHalf ? 32 : 64;
  }
  constexpr int64_t scale_bytes(int64_t n_blocks) const {
    return has_super() ? n_blocks / kSuperBlocks * super_bytes() : n_blocks * own_bytes();
  }
};

constexpr PackLayout LayoutOf(DType type) { return {CodesOf(type)}; }

// What kernels of a format unpack: a number of bits, or four that they look up among levels.
inline constexpr int kFloat4Bits = 20, kIq4Bits = 21;
constexpr int UnpackedBits(CodeLayout codes) {
  if (codes.levels == LevelKind::kNone) return codes.bits;
  return codes.levels == LevelKind::kIq4 ? kIq4Bits : kFloat4Bits;
}
// Of the codes they get.
constexpr int CodeBits(int unpacked) { return unpacked == kIq4Bits ? 8 : unpacked == kFloat4Bits ? 5 : unpacked; }

// The code of column `col` at k (0 .. 31) of a packed block.
inline int GetCode(int unpacked, const uint8_t* in, int col, int k) {
  const int group = k / 4, byte = 4 * col + k % 4;
  if (unpacked == 8) return in[group * 64 + byte];
  const int low = in[group % 4 * 64 + byte] >> (group < 4 ? 0 : 4) & 15;
  if (unpacked == 5) return low | (in[256 + byte] >> group & 1) << 4;
  if (unpacked == kFloat4Bits) return kFloat4Levels[low] + 16;
  if (unpacked == kIq4Bits) return kIq4Levels[low] + 128;
  if (unpacked == 6) return low | (in[256 + group / 4 * 64 + byte] >> (2 * (group % 4)) & 3) << 4;
  return low;
}

// Uses the machine's widest instructions (coded_product.cc).
void CodedProduct(const ProductArgs& args);

}  // namespace weir::cpu
