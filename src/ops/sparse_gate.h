// SPDX-License-Identifier: Apache-2.0
// Keeps the largest numbers of each row, so many as lie above a multiple of its standard deviation (Gemma 3n, "Gaussian
// top-k" of arXiv 2506.06644, section 3.1):
//
//   y[r, i] = max(x[r, i] - (mean + cutoff * deviation), 0), mean and (biased) deviation of row r
//
// NaN stays NaN. No backend has a version of its own: beside the products that make a row, one pass over it is little.
#pragma once

#include <cstdint>

namespace weir {

struct SparseGateArgs {
  const float* x = nullptr;  // [n_rows, dim], contiguous
  float* y = nullptr;        // [n_rows, dim]; may be x
  int64_t n_rows = 0, dim = 0;
  float cutoff = 0;
};

namespace ref {
void SparseGate(const SparseGateArgs& args);
}  // namespace ref
}  // namespace weir
