// SPDX-License-Identifier: Apache-2.0
#include "ops/causal_conv.h"

#include <cmath>

namespace weir::ref {

void CausalConv(const CausalConvArgs& args) {
  const int64_t n_before = args.n_taps - 1, n_channels = args.n_channels;
  for (int64_t c = 0; c < n_channels; ++c) {
    float seen[kMaxConvTaps];  // the last n_taps rows of the channel
    for (int64_t t = 0; t < n_before; ++t) seen[t] = args.state[t * n_channels + c];
    for (int64_t r = 0; r < args.n_rows; ++r) {
      seen[n_before] = args.x[r * n_channels + c];
      double sum = args.bias == nullptr ? 0 : args.bias[c];
      for (int64_t t = 0; t < args.n_taps; ++t) sum += static_cast<double>(args.w[t * n_channels + c]) * seen[t];
      args.y[r * n_channels + c] = static_cast<float>(args.silu ? sum / (1.0 + std::exp(-sum)) : sum);
      for (int64_t t = 0; t < n_before; ++t) seen[t] = seen[t + 1];
    }
    for (int64_t t = 0; t < n_before; ++t) args.state[t * n_channels + c] = seen[t];
  }
}

}  // namespace weir::ref
