// SPDX-License-Identifier: Apache-2.0
// The gated delta rule (gated DeltaNet, arXiv 2412.06464, equation 10): a layer that keeps, in place of keys and
// values, one matrix for each head, which every row decays, corrects and reads.
//
//   S := g S;  S := S + k (b (v - S^T k))^T;  out = S^T q,    S [d_k, d_v]
//
// with g = exp(a * softplus(alpha + dt_bias)), b = sigmoid(beta), softplus(z) = log(1 + exp(z)).
#pragma once

#include <cstdint>

#include "ops/state_block.h"

namespace weir {

struct DeltaRuleArgs {
  const float* q = nullptr;        // [n_rows, n_k_heads, d_k]
  const float* k = nullptr;        // [n_rows, n_k_heads, d_k], of length 1
  const float* v = nullptr;        // [n_rows, n_v_heads, d_v]
  const float* alpha = nullptr;    // [n_rows, n_v_heads]
  const float* beta = nullptr;     // [n_rows, n_v_heads]
  const float* a = nullptr;        // [n_v_heads], below 0
  const float* dt_bias = nullptr;  // [n_v_heads]
  // [n_v_heads, d_v / w, d_k, w], w = StateBlockWidth(d_v).
  float* state = nullptr;
  float* out = nullptr;      // [n_rows, n_v_heads, d_v], may be v
  float* scratch = nullptr;  // [2, n_rows, n_v_heads], DeltaRuleScratchFloats()
  int64_t n_rows = 0;
  // The head of q and k that value head h uses is h % n_k_heads, or h / (n_v_heads / n_k_heads) if `grouped`.
  int32_t n_k_heads = 0, n_v_heads = 0;
  int32_t d_k = 0, d_v = 0;
  bool grouped = false;

  int32_t k_head(int32_t v_head) const { return grouped ? v_head / (n_v_heads / n_k_heads) : v_head % n_k_heads; }
};

constexpr int64_t DeltaRuleScratchFloats(int64_t n_rows, int64_t n_v_heads) { return 2 * n_rows * n_v_heads; }

namespace ref {
void DeltaRule(const DeltaRuleArgs& args);
}  // namespace ref
}  // namespace weir
