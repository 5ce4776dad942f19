// SPDX-License-Identifier: Apache-2.0
// The two 16-bit floating-point types, converted in plain integer arithmetic, with the same bits on every machine, with
// or without half-precision instructions. SIMD kernels may use faster conversions; they must agree with these.
//
//   F16   IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits; largest finite value 65504
//   BF16  the upper half of a binary32: 1 sign, 8 exponent, 7 fraction bits
//
// Narrowing rounds to nearest, ties to even; values that are too large become infinity; a NaN stays a (quiet) NaN.
// Widening is exact. All four functions are constexpr, so constants and tables can be built from them at compile time.
#pragma once

#include <bit>
#include <cstdint>

namespace weir {

constexpr float F16ToF32(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t fraction = half & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  // Zero or subnormal: fraction * 2^-24 is exact in binary32.
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

constexpr uint16_t F32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  }
  // 65520 = 65504 + half a step: from here on the nearest value is infinity.
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  uint32_t kept = 0;       // the half's exponent and fraction, before rounding
  uint32_t discarded = 0;  // the bits that decide rounding
  uint32_t halfway = 0;
  if (magnitude >= 0x38800000u) {  // 2^-14, the smallest normal half
    kept = (magnitude - 0x38000000u) >> 13;
    discarded = magnitude & 0x1fffu;
    halfway = 0x1000u;
  } else {
    if (magnitude < 0x33000000u) return static_cast<uint16_t>(sign);  // below 2^-25, half of the smallest subnormal
    const uint32_t fraction = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t shift = 126 - (magnitude >> 23);  // 14 to 24
    kept = fraction >> shift;
    discarded = fraction & ((1u << shift) - 1);
    halfway = 1u << (shift - 1);
  }
  // A carry out of the fraction goes into the exponent, which is correct.
  if (discarded > halfway || (discarded == halfway && (kept & 1) != 0)) ++kept;
  return static_cast<uint16_t>(sign | kept);
}

constexpr float BF16ToF32(uint16_t value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

constexpr uint16_t F32ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  // Rounding a NaN could carry into the exponent and make it an infinity: truncate it and set the quiet bit.
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

constexpr bool IsFiniteF16(uint16_t half) { return (half & 0x7c00u) != 0x7c00u; }
constexpr bool IsFiniteBF16(uint16_t value) { return (value & 0x7f80u) != 0x7f80u; }

}  // namespace weir
