// SPDX-License-Identifier: Apache-2.0
// Encoding for formats whose sixteen codes stand for levels that are not evenly spaced: IQ4_NL, IQ4_XS.
#pragma once

#include <cstdint>

namespace weir {

inline constexpr int kNumLevels = 16;

// The code of the ascending level nearest to x.
int NearestLevel(const int8_t* levels, float x);

// The scale with which levels come nearest to n values: the sum of the squares of in - scale * level is small.
// REQUIRES: the values are finite.
float SearchLevelScale(const float* in, int n, const int8_t* levels);

}  // namespace weir
