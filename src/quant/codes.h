// SPDX-License-Identifier: Apache-2.0
// Formats whose weights are small integers with scales. Kernels on packed codes (backend/cpu/coded_weights.cc,
// backend/cuda/planar_weights.cu) need only this description: a format that has one runs on them without further code.
//
// A row is divided into blocks of 32 elements, whatever the format's own block size:
//
//   weight = (code - offset) * scale + addend
//
// where the code is an unsigned integer, and ScaleKind defines the scale and addend of a block or of each half of a
// block. Formats with levels store numbers of four bits, each of which stands for a code (LevelKind).
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace weir {

inline constexpr int kCodeBlock = 32;

enum class ScaleKind : uint8_t {
  kHalf,     // d: scale = d, no addend
  kHalfMin,  // d and m: scale = d, addend = m
  kSuper,    // d and m shared by 8 blocks; scale = d * sub[0], addend = -(m * sub[1]), sub unsigned
  kSuper16,  // d shared by 8 blocks; scale of the first half d * sub[0], of the second d * sub[1], sub signed; no
             // addend
  kSuper32,  // d shared by 8 blocks; scale = d * sub[0], sub signed; no addend
  kHalves,   // d and m: scale of the first half d, of the second m; no addend
  kPower,    // scale = 2^(sub[0] - 128); no addend
};

// Sixteen codes that are not evenly spaced, in place of the numbers 0 to 15.
enum class LevelKind : uint8_t {
  kNone,
  kFloat4,  // twice the numbers of MXFP4 and NVFP4, plus 16: the offset is 16
  kIq4,     // those of IQ4_NL and IQ4_XS, plus 128: the offset is 128
};

inline constexpr int8_t kFloat4Levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
inline constexpr int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
// The codes of a kind of levels.
constexpr std::array<uint8_t, 16> LevelCodes(LevelKind kind) {
  std::array<uint8_t, 16> out{};
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<uint8_t>(kind == LevelKind::kFloat4 ? kFloat4Levels[i] + 16 : kIq4Levels[i] + 128);
  }
  return out;
}

// REQUIRES, of a format made of codes: bits is 4, 5, 6 or 8; with 8 bits, offset_log2 is 7; with levels, bits is 4 and
// offset_log2 theirs; with kSuper, kSuper16 and kSuper32, the format's blocks have 256 elements. Each is checked where
// a kernel is instantiated for the description.
struct CodeLayout {
  int bits = 0;          // of a stored number; 0: the format is not made of codes
  int offset_log2 = -1;  // offset = 1 << offset_log2; -1: none
  ScaleKind scales = ScaleKind::kHalf;
  LevelKind levels = LevelKind::kNone;

  constexpr bool has_codes() const { return bits > 0; }
  constexpr bool has_addend() const { return scales == ScaleKind::kHalfMin || scales == ScaleKind::kSuper; }
  // Numbers that 8 blocks share.
  constexpr bool has_super() const {
    return scales == ScaleKind::kSuper || scales == ScaleKind::kSuper16 || scales == ScaleKind::kSuper32;
  }
  // A block's halves have scales of their own.
  constexpr bool has_two() const { return scales == ScaleKind::kSuper16 || scales == ScaleKind::kHalves; }
  constexpr int offset() const { return offset_log2 < 0 ? 0 : 1 << offset_log2; }
  // Of codes.
  constexpr int code_bits() const { return levels == LevelKind::kIq4 ? 8 : levels == LevelKind::kFloat4 ? 5 : bits; }
  // The code that a stored number stands for.
  constexpr int CodeOf(int stored) const {
    if (levels == LevelKind::kFloat4) return kFloat4Levels[stored] + 16;
    return levels == LevelKind::kIq4 ? kIq4Levels[stored] + 128 : stored;
  }
};

// kPower's scale, a subnormal number for the two smallest.
inline float PowerScale(uint8_t e) {
  const uint32_t bits = e < 2 ? uint32_t{0x00200000} << e : static_cast<uint32_t>(e - 1) << 23;
  return std::bit_cast<float>(bits);
}

// One block of 32, with the numbers and the scales as stored in the file.
struct CodeBlock {
  uint8_t code[kCodeBlock] = {};
  uint16_t d = 0, m = 0;  // F16
  uint8_t sub[2] = {};    // kSuper16, kSuper32: the bits of signed numbers
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
