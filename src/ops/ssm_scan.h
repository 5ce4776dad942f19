// SPDX-License-Identifier: Apache-2.0
// The scan of Mamba-2 (arXiv 2405.21060, section 3.1, with its scalar decay): a layer that keeps, in place of keys and
// values, one matrix for each head, which every row decays, adds to and reads.
//
//   H := g H + b (t x)^T;  out = H^T c + d x,    H [d_state, d_head]
//
// with t = softplus(dt + dt_bias) = log(1 + exp(dt + dt_bias)) and g = exp(a t).
#pragma once

#include <cstdint>

#include "ops/state_block.h"

namespace weir {

struct SsmScanArgs {
  const float* x = nullptr;        // [n_rows, n_heads, d_head]
  const float* b = nullptr;        // [n_rows, n_groups, d_state]
  const float* c = nullptr;        // [n_rows, n_groups, d_state]
  const float* dt = nullptr;       // [n_rows, n_heads]
  const float* dt_bias = nullptr;  // [n_heads]
  const float* a = nullptr;        // [n_heads], below 0
  const float* d = nullptr;        // [n_heads]
  // [n_heads, d_head / w, d_state, w], w = StateBlockWidth(d_head).
  float* state = nullptr;
  float* out = nullptr;      // [n_rows, n_heads, d_head], may be x
  float* scratch = nullptr;  // [2, n_rows, n_heads]
  int64_t n_rows = 0;
  int32_t n_groups = 0, n_heads = 0;  // head h has the b and c of group h / (n_heads / n_groups)
  int32_t d_state = 0, d_head = 0;

  int32_t group(int32_t head) const { return head / (n_heads / n_groups); }
};

namespace ref {
void SsmScan(const SsmScanArgs& args);
}  // namespace ref
}  // namespace weir
