// SPDX-License-Identifier: Apache-2.0
#include "ops/delta_rule.h"

#include <cmath>

namespace weir::ref {

void DeltaRule(const DeltaRuleArgs& args) {
  const int64_t width = StateBlockWidth(args.d_v);
  for (int32_t h = 0; h < args.n_v_heads; ++h) {
    for (int64_t r = 0; r < args.n_rows; ++r) {
      const int64_t at = r * args.n_v_heads + h;
      const double z = static_cast<double>(args.alpha[at]) + args.dt_bias[h];
      const double softplus = z > 30 ? z : std::log1p(std::exp(z));
      const double g = std::exp(args.a[h] * softplus);
      const double b = 1.0 / (1.0 + std::exp(-static_cast<double>(args.beta[at])));
      const float* q = args.q + (r * args.n_k_heads + args.k_head(h)) * args.d_k;
      const float* k = args.k + (r * args.n_k_heads + args.k_head(h)) * args.d_k;
      for (int64_t j = 0; j < args.d_v; ++j) {
        // Column j of the head's matrix.
        float* s = args.state + h * args.d_k * args.d_v + j / width * args.d_k * width + j % width;
        double known = 0, out = 0;
        for (int64_t i = 0; i < args.d_k; ++i) known += g * s[i * width] * k[i];
        const double delta = b * (args.v[at * args.d_v + j] - known);
        for (int64_t i = 0; i < args.d_k; ++i) {
          const double next = g * s[i * width] + k[i] * delta;
          s[i * width] = static_cast<float>(next);
          out += next * q[i];
        }
        args.out[at * args.d_v + j] = static_cast<float>(out);
      }
    }
  }
}

}  // namespace weir::ref
