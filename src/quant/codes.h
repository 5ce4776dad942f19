// SPDX-License-Identifier: Apache-2.0
// Formats whose weights are small integers with scales. Kernels on packed codes (backend/cpu/coded_weights.cc,
// backend/cuda/planar_weights.cu) need only this description: a format that has one runs on them without further code.
//
// A row is divided into blocks of 32 elements, whatever the format's own block size:
//
//   weight = (code - offset) * scale + addend
//
// where the code is an unsigned integer, and ScaleKind defines the scale and addend of a block or of each half of a
// block.
#pragma once

#include <cstdint>

namespace weir {

inline constexpr int kCodeBlock = 32;

enum class ScaleKind : uint8_t {
  kHalf,     // d: scale = d, no addend
  kHalfMin,  // d and m: scale = d, addend = m
  kSuper,    // d and m shared by 8 blocks; scale = d * sub[0], addend = -(m * sub[1]), sub unsigned
  kSuper16,  // d shared by 8 blocks; scale of the first half d * sub[0], of the second d * sub[1], sub signed; no
             // addend
};

// REQUIRES, of a format made of codes: bits is 4, 5, 6 or 8; with 8 bits, offset_log2 is 7; with kSuper and kSuper16,
// the format's blocks have 256 elements. Each is checked where a kernel is instantiated for the description.
struct CodeLayout {
  int bits = 0;          // of a code; 0: the format is not made of codes
  int offset_log2 = -1;  // offset = 1 << offset_log2; -1: none
  ScaleKind scales = ScaleKind::kHalf;

  constexpr bool has_codes() const { return bits > 0; }
  constexpr bool has_addend() const { return scales == ScaleKind::kHalfMin || scales == ScaleKind::kSuper; }
  constexpr bool has_sub() const { return scales == ScaleKind::kSuper || scales == ScaleKind::kSuper16; }
  constexpr int offset() const { return offset_log2 < 0 ? 0 : 1 << offset_log2; }
};

// One block of 32, with the scales as stored in the file.
struct CodeBlock {
  uint8_t code[kCodeBlock] = {};
  uint16_t d = 0, m = 0;  // F16
  uint8_t sub[2] = {};    // kSuper16: the bits of signed numbers
};

// Common to the formats: element i (0 to 15) is the low nibble of byte i, element 16 + i its high nibble.
inline void ReadNibbles(const uint8_t* qs, CodeBlock* out) {
  for (int i = 0; i < kCodeBlock / 2; ++i) {
    out->code[i] = qs[i] & 0x0f;
    out->code[i + kCodeBlock / 2] = qs[i] >> 4;
  }
}
// Bit i of 32 is the fifth bit of element i.
inline void ReadFifthBits(const uint8_t* qh, CodeBlock* out) {
  for (int i = 0; i < kCodeBlock; ++i) out->code[i] |= static_cast<uint8_t>((qh[i / 8] >> (i % 8) & 1) << 4);
}

}  // namespace weir
