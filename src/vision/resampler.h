// SPDX-License-Identifier: Apache-2.0
// One layer of cross-attention in which learned queries read a picture's patches (Qwen-VL, 2308.12966, section 2.1;
// MiniCPM-V, 2408.01800, section 3.1). Keys carry positions of a grid, sines and cosines of line and column, and so may
// queries; values do not.
//
//   e = norm_kv(W_kv x),  out = attention(W_q (norm_q(query) + p), W_k (e + p_k), W_v e),  rows = W norm(W_o out)
#pragma once

#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "base/status.h"
#include "base/workspace.h"
#include "model/weights.h"
#include "vision/encoder.h"

namespace weir {

struct ResamplerShape {
  int64_t n_in = 0, n_out = 0;  // width of a patch's row and of a query's
  int64_t n_queries = 0, n_heads = 0;
  float eps = 0;
};

class Resampler {
 public:
  // Tensors resampler.query, ln_q, ln_kv, ln_post, kv, attn.* and proj.
  Status Load(const ResamplerShape& shape, WeightLoader& loader);

  struct Buffers {
    float *kv, *at, *k, *v;  // the picture's rows, [n, n_out]; `at`: their positions, later with the rows
    float *query, *q, *mix;  // [n_queries, n_out]
    void *scratch, *attention_scratch;
  };
  // For up to n patches.
  Buffers LayOut(const Backend& backend, int64_t n, Workspace* space) const;
  // Rows of x, [n, n_in], as args.out, [n_queries, n_out]. REQUIRES: positions of the patches in b.at. `query_at`:
  // positions of the queries, [n_queries, n_out], or nullptr. Intermediates are offered as mm.ln_kv, ln_q, q, k, v,
  // mix, out, ln_post and proj, the output of ln_post as SignalKind::kOutputs.
  void Run(Backend& backend, const float* x, int64_t n, const Buffers& b, const Matrix* query_at,
           const EncodeArgs& args) const;
  SignalShape outputs() const { return {1, 1, shape_.n_queries, shape_.n_out}; }

 private:
  ResamplerShape shape_;
  std::unique_ptr<Matrix> query_;  // [n_queries, n_out]
  LayerNormWeights query_norm_, kv_norm_, post_norm_;
  LinearWeights kv_, wq_, wk_, wv_, wo_, projection_;
};

}  // namespace weir
