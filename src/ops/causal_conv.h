// SPDX-License-Identifier: Apache-2.0
// A short convolution over time for each channel, of a stream that arrives in pieces: what one call needs of the rows
// before its first is kept in a state (gated DeltaNet, arXiv 2412.06464, section 3.4; LFM2).
#pragma once

#include <cstdint>

namespace weir {

// y[r, c] = f(bias[c] + sum over taps t of w[t, c] * x[r - (n_taps - 1) + t, c]), with rows before the first from the
// state; f is silu(z) = z / (1 + exp(-z)), or nothing.
struct CausalConvArgs {
  const float* x = nullptr;     // [n_rows, n_channels]
  const float* w = nullptr;     // [n_taps, n_channels]; the last tap multiplies the row itself
  const float* bias = nullptr;  // [n_channels] or nullptr
  float* state = nullptr;       // [n_taps - 1, n_channels]: the rows before the first, oldest first; then the last ones
  float* y = nullptr;           // [n_rows, n_channels], may be x
  int64_t n_rows = 0, n_channels = 0, n_taps = 0;  // n_taps: 1 to kMaxConvTaps
  bool silu = false;
};
inline constexpr int64_t kMaxConvTaps = 8;

namespace ref {
void CausalConv(const CausalConvArgs& args);
}  // namespace ref
}  // namespace weir
