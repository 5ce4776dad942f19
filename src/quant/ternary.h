// SPDX-License-Identifier: Apache-2.0
// What the formats of values -d, 0 and d share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "quant/block.h"

namespace weir {

// The scale of n values: the largest one's size, as an F16; NaN where they cannot be encoded. Returns its inverse.
inline float TernaryScale(const float* in, int n, uint16_t* d) {
  float peak = 0.0f;
  for (int i = 0; i < n; ++i) peak = std::max(peak, std::fabs(in[i]));
  *d = FiniteValues(in, n) ? F32ToF16(peak) : kHalfNan;
  return InverseOrZero(F16ToF32(*d));
}

}  // namespace weir
