// SPDX-License-Identifier: Apache-2.0
#include "ops/sparse_gate.h"

#include <cmath>

namespace weir::ref {

void SparseGate(const SparseGateArgs& args) {
  const double n = static_cast<double>(args.dim);
  for (int64_t r = 0; r < args.n_rows; ++r) {
    const float* x = args.x + r * args.dim;
    float* y = args.y + r * args.dim;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < args.dim; ++i) sum += x[i];
    const double mean = sum / n;
    for (int64_t i = 0; i < args.dim; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const float least = static_cast<float>(mean + args.cutoff * std::sqrt(squares / n));
    for (int64_t i = 0; i < args.dim; ++i) {
      const float above = x[i] - least;
      y[i] = above < 0 ? 0 : above;
    }
  }
}

}  // namespace weir::ref
