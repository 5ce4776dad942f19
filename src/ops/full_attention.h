// SPDX-License-Identifier: Apache-2.0
// Attention of every query row over every key row: no causal order, no positions, no pot. Vision encoders use it for
// self-attention over patches and for cross-attention.
//
//   out[r, h, :] = sum_j softmax_j(scale * q[r, h, :] . k[j, h, :]) * v[j, h, :]
//
// REQUIRES: head_dim <= kMaxHeadDim; n_q, n_kv >= 1; `out` does not overlap q, k, v.
#pragma once

#include <cstdint>

namespace weir {

struct FullAttentionArgs {
  int64_t n_heads = 0, head_dim = 0;
  float scale = 0;           // usually 1 / sqrt(head_dim)
  const float* q = nullptr;  // [n_q, n_heads, head_dim]; rows q_stride floats apart
  int64_t q_stride = 0, n_q = 0;
  const float* k = nullptr;  // [n_kv, n_heads, head_dim]; rows kv_stride floats apart, as in v
  const float* v = nullptr;
  int64_t kv_stride = 0, n_kv = 0;
  float* out = nullptr;  // [n_q, n_heads, head_dim]; rows out_stride floats apart
  int64_t out_stride = 0;
  void* scratch = nullptr;  // Backend::FullAttentionScratchBytes(...) bytes, 64-byte aligned
};

// The attention weights themselves, to show what a picture's rows attend to: some query rows of one head.
//
//   out[i, j] = softmax_j(scale * q[row_begin + i, head, :] . k[j, head, :])
struct FullAttentionWeightsArgs {
  FullAttentionArgs attention;  // v, out and scratch are unused
  int64_t head = 0;
  int64_t row_begin = 0, n_rows = 0;
  float* out = nullptr;  // [n_rows, n_kv]
};

namespace ref {
// Scores, softmax and sums in double.
void FullAttention(const FullAttentionArgs& args);
// Sums in double; allocates nothing.
void FullAttentionWeights(const FullAttentionWeightsArgs& args);
}  // namespace ref
}  // namespace weir
