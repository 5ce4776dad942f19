// SPDX-License-Identifier: Apache-2.0
// The activation xIELU (arXiv 2411.13010, section 3), with factors that a model learns for each layer:
//
//   y = up x^2 + slope x                                  for x > 0
//   y = down (exp(min(x, least)) - 1 - x) + slope x       otherwise
//
// NaN stays NaN. No backend has a version of its own.
#pragma once

#include <cstdint>

namespace weir {

struct XieluFactors {
  float up = 0, down = 0, slope = 0;
  float least = 0;  // a negative number close to 0
};

struct XieluArgs {
  XieluFactors factors;
  const float* x = nullptr;  // [n]
  float* y = nullptr;        // [n]; may be x
  int64_t n = 0;
};

namespace ref {
void Xielu(const XieluArgs& args);
}  // namespace ref
}  // namespace weir
