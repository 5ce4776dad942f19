// SPDX-License-Identifier: Apache-2.0
#include "ops/ssm_scan.h"

#include <cmath>

namespace weir::ref {

void SsmScan(const SsmScanArgs& args) {
  const int64_t width = StateBlockWidth(args.d_head);
  for (int32_t h = 0; h < args.n_heads; ++h) {
    for (int64_t r = 0; r < args.n_rows; ++r) {
      const int64_t at = r * args.n_heads + h;
      const double z = static_cast<double>(args.dt[at]) + args.dt_bias[h];
      const double t = z > 30 ? z : std::log1p(std::exp(z));
      const double g = std::exp(args.a[h] * t);
      const float* b = args.b + (r * args.n_groups + args.group(h)) * args.d_state;
      const float* c = args.c + (r * args.n_groups + args.group(h)) * args.d_state;
      for (int64_t j = 0; j < args.d_head; ++j) {
        // Column j of the head's matrix.
        float* s = args.state + h * int64_t{args.d_state} * args.d_head + j / width * args.d_state * width + j % width;
        const double x = args.x[at * args.d_head + j];
        double out = args.d[h] * x;
        for (int64_t i = 0; i < args.d_state; ++i) {
          const double next = g * s[i * width] + b[i] * t * x;
          s[i * width] = static_cast<float>(next);
          out += next * c[i];
        }
        args.out[at * args.d_head + j] = static_cast<float>(out);
      }
    }
  }
}

}  // namespace weir::ref
