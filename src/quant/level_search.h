// SPDX-License-Identifier: Apache-2.0
// Formats whose sixteen codes stand for levels that are not evenly spaced: IQ4_NL, IQ4_XS, MXFP4.
#pragma once

#include <cstdint>

namespace weir {

inline constexpr int kNumLevels = 16;
// Of IQ4_NL and IQ4_XS, ascending.
inline constexpr int8_t kIq4Levels[kNumLevels] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                  1,    13,   25,  38,  53,  69,  89,  113};

// The code of the ascending level nearest to x.
int NearestLevel(const int8_t* levels, float x);

// The scale with which levels come nearest to n values: the sum of the squares of in - scale * level is small.
// REQUIRES: the values are finite.
float SearchLevelScale(const float* in, int n, const int8_t* levels);

}  // namespace weir
