// SPDX-License-Identifier: Apache-2.0
// Helpers shared by the block formats of this folder. Not for use outside it.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/half.h"

namespace weir {

// Blocks are unaligned: copy in and out instead of casting the pointer. Compilers turn this into loads.
template <typename Block>
inline Block LoadBlock(const uint8_t* bytes) {
  Block block;
  std::memcpy(&block, bytes, sizeof(Block));
  return block;
}

template <typename Block>
inline void StoreBlock(const Block& block, uint8_t* bytes) {
  std::memcpy(bytes, &block, sizeof(Block));
}

// Checks that scales are finite, for blocks whose scales are one half at byte kFirst and, if kSecond >= 0, another at
// byte kSecond. No early exit: on valid files, the common case, the loop has no branch to mispredict.
template <typename Block, int kFirst, int kSecond = -1>
bool HalfScalesFinite(const uint8_t* blocks, int64_t n_blocks) {
  bool finite = true;
  for (int64_t i = 0; i < n_blocks; ++i, blocks += sizeof(Block)) {
    finite &= IsFiniteF16(LoadBlock<uint16_t>(blocks + kFirst));
    if constexpr (kSecond >= 0) finite &= IsFiniteF16(LoadBlock<uint16_t>(blocks + kSecond));
  }
  return finite;
}

inline bool FiniteValues(const float* in, int n) {
  bool finite = true;
  for (int i = 0; i < n; ++i) finite &= std::isfinite(in[i]);
  return finite;
}

inline constexpr uint16_t kHalfNan = 0x7e00;

// Truncated to an integer within [low, high]. Defined for all inputs: a NaN (0 * infinity, when a scale is so small
// that its inverse overflows) becomes low, where a plain conversion would be undefined.
template <typename Float>
inline int TruncateTo(Float value, int low, int high) {
  if (!(value > static_cast<Float>(low))) return low;
  if (value >= static_cast<Float>(high)) return high;
  return static_cast<int>(value);
}

// Rounded to the nearest integer within [low, high], halves away from zero.
inline int RoundTo(float value, int low, int high) { return TruncateTo(std::round(value), low, high); }

inline float InverseOrZero(float value) { return value == 0.0f ? 0.0f : 1.0f / value; }

}  // namespace weir
