// SPDX-License-Identifier: Apache-2.0
#include "ops/experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace weir::ref {

void Route(const RouteArgs& args) {
  for (int64_t r = 0; r < args.n_rows; ++r) {
    const float* logits = args.logits + r * args.n_experts;
    int32_t* ids = args.ids + r * args.n_used;
    float* weights = args.weights + r * args.n_used;
    // The best so far, in order. A later one moves up only past smaller ones, so that equal ones keep their order.
    int64_t n_best = 0;
    for (int32_t e = 0; e < args.n_experts; ++e) {
      if (n_best == args.n_used && !(logits[e] > logits[ids[n_best - 1]])) continue;
      int64_t at = n_best < args.n_used ? n_best++ : n_best - 1;
      for (; at > 0 && logits[e] > logits[ids[at - 1]]; --at) ids[at] = ids[at - 1];
      ids[at] = e;
    }
    double max = logits[ids[0]], sum = 0;
    if (args.normalise) {
      for (int64_t i = 0; i < args.n_used; ++i) sum += std::exp(logits[ids[i]] - max);
    } else {
      for (int64_t e = 0; e < args.n_experts; ++e) sum += std::exp(logits[e] - max);
    }
    // One that is not a number may be among those that were not chosen.
    if (std::any_of(logits, logits + args.n_experts, [](float z) { return std::isnan(z); })) sum = std::nan("");
    for (int64_t i = 0; i < args.n_used; ++i) weights[i] = static_cast<float>(std::exp(logits[ids[i]] - max) / sum);
  }
}

void GatherRows(const GatherRowsArgs& args) {
  for (int64_t i = 0; i < args.n_rows; ++i) {
    std::memcpy(args.y + i * args.dim, args.x + args.rows[i] * args.dim, static_cast<size_t>(args.dim) * 4);
  }
}

void ScatterAddRows(const ScatterAddRowsArgs& args) {
  for (int64_t i = 0; i < args.n_rows; ++i) {
    const float* x = args.x + i * args.dim;
    float* y = args.y + args.rows[i] * args.dim;
    for (int64_t d = 0; d < args.dim; ++d) y[d] += args.weights[i] * x[d];
  }
}

void GateRows(const GateRowsArgs& args) {
  for (int64_t r = 0; r < args.n_rows; ++r) {
    double dot = 0;
    for (int64_t k = 0; k < args.n_in; ++k) dot += static_cast<double>(args.x[r * args.n_in + k]) * args.w[k];
    const auto gate = static_cast<float>(1 / (1 + std::exp(-dot)));
    for (int64_t d = 0; d < args.dim; ++d) args.y[r * args.dim + d] *= gate;
  }
}

}  // namespace weir::ref
