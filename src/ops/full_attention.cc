// SPDX-License-Identifier: Apache-2.0
#include "ops/full_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace weir::ref {

void FullAttention(const FullAttentionArgs& args) {
  std::vector<double> p(static_cast<size_t>(args.n_kv));
  for (int64_t h = 0; h < args.n_heads; ++h) {
    for (int64_t r = 0; r < args.n_q; ++r) {
      const float* q = args.q + r * args.q_stride + h * args.head_dim;
      double largest = -INFINITY, sum = 0;
      for (int64_t j = 0; j < args.n_kv; ++j) {
        const float* k = args.k + j * args.kv_stride + h * args.head_dim;
        double dot = 0;
        for (int64_t d = 0; d < args.head_dim; ++d) dot += static_cast<double>(q[d]) * k[d];
        p[j] = args.scale * dot;
        largest = std::max(largest, p[j]);
      }
      for (double& value : p) sum += value = std::exp(value - largest);
      float* out = args.out + r * args.out_stride + h * args.head_dim;
      for (int64_t d = 0; d < args.head_dim; ++d) {
        double mix = 0;
        for (int64_t j = 0; j < args.n_kv; ++j) mix += p[j] * args.v[j * args.kv_stride + h * args.head_dim + d];
        out[d] = static_cast<float>(mix / sum);
      }
    }
  }
}

void FullAttentionWeights(const FullAttentionWeightsArgs& args) {
  const FullAttentionArgs& a = args.attention;
  for (int64_t r = 0; r < args.n_rows; ++r) {
    const float* q = a.q + (args.row_begin + r) * a.q_stride + args.head * a.head_dim;
    float* out = args.out + r * a.n_kv;
    float largest = -INFINITY;
    for (int64_t j = 0; j < a.n_kv; ++j) {
      const float* k = a.k + j * a.kv_stride + args.head * a.head_dim;
      double dot = 0;
      for (int64_t d = 0; d < a.head_dim; ++d) dot += static_cast<double>(q[d]) * k[d];
      out[j] = static_cast<float>(a.scale * dot);
      largest = std::max(largest, out[j]);
    }
    double sum = 0;
    for (int64_t j = 0; j < a.n_kv; ++j) sum += std::exp(static_cast<double>(out[j]) - largest);
    for (int64_t j = 0; j < a.n_kv; ++j) {
      out[j] = static_cast<float>(std::exp(static_cast<double>(out[j]) - largest) / sum);
    }
  }
}

}  // namespace weir::ref
