// SPDX-License-Identifier: Apache-2.0
// Weights made of codes (quant/codes.h) as kernels want them: every part of a format in a plane of its own, so that
// neighbouring lanes read neighbouring 16-byte pieces, which the 18- or 210-byte blocks of the files do not allow.
// Nothing is rounded: a planar row decodes to the bits of the file's row.
//
// A row is cut into blocks of 32 elements, block b of row o has number o * n_blocks + b in every plane:
//
//   codes   16 bytes: byte i holds the low four bits of element i (low nibble) and of element 16 + i (high nibble)
//           32 bytes for codes of 8 bits, as signed bytes
//   high    5-bit formats: 4 bytes, bit w of byte j is bit 4 of element 4w + j
//           6-bit formats: 8 bytes, bits 2(w % 4) of byte j of word w / 4 are bits 4 and 5 of element 4w + j
//   sub     kSuper: the two bytes scale and minimum; kSuper16: the scales of elements 0-15 and 16-31
//   super   one or two halves, d and what the minimum is counted in; one set a block, or one for 8 blocks (kSuper,
//   kSuper16)
//
// A "word" is four elements, 4w to 4w + 3, as signed bytes: what Dot4() and MmaS8() take. With a block's scale a[h] (h:
// first or second 16 elements) and addend m,  element = a[h] * code + m.
#pragma once

#include <cstdint>

#include "backend/cuda/grid.h"
#include "quant/block_formats.h"
#include "quant/dtype.h"

namespace weir::WEIR_GPU {

inline constexpr int kPlanarBlock = 32;
inline constexpr int kPlanarWords = 8;

struct PlanarFormat {
  int code_bytes = 0;       // of a block
  int high_bits = 0;        // of an element, beyond the low four
  int sub_bytes = 0;        // of a block
  int super_halves = 0;     // of a set
  int super_blocks = 1;     // blocks that share a set
  int offset = 0;           // subtracted from a code
  bool minimum = false;     // elements have an addend
  bool two_scales = false;  // a block's halves have scales of their own
};

// Codes that stand for levels are not stored in planes.
constexpr bool IsPlanar(DType type) { return CodesOf(type).has_codes() && CodesOf(type).levels == LevelKind::kNone; }

constexpr PlanarFormat PlanarFormatOf(DType type) {
  const CodeLayout codes = CodesOf(type);
  if (!IsPlanar(type)) return {};
  const bool whole_bytes = codes.bits == 8;  // which are signed here
  return {
      .code_bytes = whole_bytes ? 32 : 16,
      .high_bits = whole_bytes ? 0 : codes.bits - 4,
      .sub_bytes = codes.has_super() ? 2 : 0,
      .super_halves = codes.has_addend() ? 2 : 1,
      .super_blocks = codes.has_super() ? 8 : 1,
      .offset = whole_bytes ? 0 : codes.offset(),
      .minimum = codes.has_addend(),
      .two_scales = codes.scales == ScaleKind::kSuper16,
  };
}
// The kernels' view of it.
template <DType kType>
inline constexpr PlanarFormat kPlanarFormat = PlanarFormatOf(kType);

// The planes of a matrix. `high` and `sub` are nullptr where a format has none.
struct Planar {
  const uint8_t* codes = nullptr;
  const uint8_t* high = nullptr;
  const uint8_t* sub = nullptr;
  const uint16_t* super = nullptr;
  int64_t n_blocks = 0;  // of a row
};

// Offsets of the planes of n_out rows in one allocation.
struct PlanarLayout {
  int64_t codes = 0, high = 0, sub = 0, super = 0, bytes = 0;
};
PlanarLayout PlanarLayoutOf(DType type, int64_t n_out, int64_t n_in);
Planar PlanarAt(const uint8_t* base, const PlanarLayout& layout, DType type, int64_t n_in);

// On the host: writes row `o` of a planar matrix from the file's bytes.
void PackPlanarRow(DType type, const uint8_t* row, int64_t n_in, int64_t o, const PlanarLayout& layout, uint8_t* base);

struct BlockScale {
  float a[2];
  float m;
};

template <DType kType>
WEIR_DEVICE BlockScale ScaleOf(const Planar& w, int64_t block) {
  constexpr PlanarFormat kFormat = kPlanarFormat<kType>;
  const uint16_t* super = w.super + block / kFormat.super_blocks * kFormat.super_halves;
  const float d = HalfToFloat(super[0]);
  BlockScale out = {{d, d}, 0.0f};
  if (kFormat.sub_bytes > 0) {
    const uint8_t* sub = w.sub + block * kFormat.sub_bytes;
    if (kFormat.minimum) {
      out.a[0] = out.a[1] = d * static_cast<float>(sub[0]);
      out.m = -(HalfToFloat(super[1]) * static_cast<float>(sub[1]));
    } else {
      out.a[0] = d * static_cast<float>(static_cast<int8_t>(sub[0]));
      out.a[1] = d * static_cast<float>(static_cast<int8_t>(sub[1]));
    }
  } else if (kFormat.minimum) {
    out.m = HalfToFloat(super[1]);
  }
  return out;
}

// The bytes of `codes` minus kOffset; none goes below -128.
template <int kOffset>
WEIR_DEVICE uint32_t WithOffset(uint32_t codes) {
  if (kOffset == 0) return codes;
  // With the top bit set, no byte borrows from the next; flipping it back gives two's complement.
  return ((codes | 0x80808080u) - static_cast<uint32_t>(kOffset) * 0x01010101u) ^ 0x80808080u;
}

// All words of a block.
template <DType kType>
WEIR_DEVICE void LoadWords(const Planar& w, int64_t block, uint32_t words[kPlanarWords]) {
  constexpr PlanarFormat kFormat = kPlanarFormat<kType>;
  const uint4* codes = reinterpret_cast<const uint4*>(w.codes + block * kFormat.code_bytes);
  const uint4 first = codes[0];
  if (kFormat.code_bytes == 32) {
    const uint4 second = codes[1];
    words[0] = first.x, words[1] = first.y, words[2] = first.z, words[3] = first.w;
    words[4] = second.x, words[5] = second.y, words[6] = second.z, words[7] = second.w;
    return;
  }
  uint32_t high[2] = {0, 0};
  if (kFormat.high_bits == 1) {
    high[0] = reinterpret_cast<const uint32_t*>(w.high)[block];
  } else if (kFormat.high_bits == 2) {
    high[0] = reinterpret_cast<const uint32_t*>(w.high)[2 * block];
    high[1] = reinterpret_cast<const uint32_t*>(w.high)[2 * block + 1];
  }
  const uint32_t packed[4] = {first.x, first.y, first.z, first.w};
  WEIR_UNROLL
  for (int i = 0; i < kPlanarWords; ++i) {
    uint32_t word = (i < 4 ? packed[i % 4] : packed[i % 4] >> 4) & 0x0f0f0f0fu;
    if (kFormat.high_bits == 1) word |= ((high[0] >> i) & 0x01010101u) << 4;
    if (kFormat.high_bits == 2) word |= ((high[i / 4] >> (2 * (i % 4))) & 0x03030303u) << 4;
    words[i] = WithOffset<kFormat.offset>(word);
  }
}

// Element i of a block's words, decoded.
WEIR_DEVICE float ElementOf(const BlockScale& scale, const uint32_t words[kPlanarWords], int i) {
  const auto code = static_cast<float>(static_cast<int8_t>(words[i / 4] >> (i % 4 * 8)));
  return scale.a[i / 16] * code + scale.m;
}

}  // namespace weir::WEIR_GPU
