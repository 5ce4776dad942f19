// SPDX-License-Identifier: Apache-2.0
// The orthonormal Hadamard transform of a vector, over blocks of a power of two: block by block, x becomes
// H x / sqrt(n) with H(i, j) = -1 where i and j have an odd number of bits in common, else 1. It is its own inverse.
//
// Every result is a mean of all elements of its block up to signs, so that one large element becomes many small ones. A
// format with few bits and one scale a block of elements then loses less (QuaRot, arXiv 2404.00456, section 4).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace weir {

inline constexpr int64_t kMaxHadamard = 256;

// Elements of a block: the largest power of two that divides n, at most kMaxHadamard.
constexpr int64_t HadamardBlock(int64_t n) { return std::min(n & -n, kMaxHadamard); }
// That makes the transform orthonormal.
inline float HadamardFactor(int64_t n) { return 1.0f / std::sqrt(static_cast<float>(HadamardBlock(n))); }

namespace ref {
// In place. Sums of neighbours first, then of elements 2, 4 ... apart, then the factor: all versions compute in this
// order, so that they give the same bits.
void Hadamard(float* x, int64_t n);
}  // namespace ref
}  // namespace weir
