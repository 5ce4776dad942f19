// SPDX-License-Identifier: Apache-2.0
#include "vision/resampler.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "vision/vit.h"
#include "vision/vit_blocks.h"

namespace weir {

Status Resampler::Load(const ResamplerShape& shape, WeightLoader& loader) {
  shape_ = shape;
  const int64_t d = shape.n_in, e = shape.n_out;
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.kv", e, d, &kv_));
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.query", shape.n_queries, e, &query_));
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.ln_q", e, &query_norm_));
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.ln_kv", e, &kv_norm_));
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.ln_post", e, &post_norm_));
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.attn.q", e, e, &wq_));
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.attn.k", e, e, &wk_));
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.attn.v", e, e, &wv_));
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.attn.out", e, e, &wo_));
  return loader.Load("resampler.proj", e, e, &projection_);
}

Resampler::Buffers Resampler::LayOut(const Backend& backend, int64_t n, Workspace* space) const {
  const int64_t d = shape_.n_in, e = shape_.n_out, nq = shape_.n_queries;
  Buffers b;
  for (float** rows : {&b.kv, &b.at, &b.k, &b.v}) *rows = space->Floats(n * e);
  for (float** rows : {&b.query, &b.q, &b.mix}) *rows = space->Floats(nq * e);
  b.scratch = space->Bytes(backend.MatMulScratchBytes(std::max(n, nq), std::max(d, e)));
  b.attention_scratch =
      space->Bytes(backend.FullAttentionScratchBytes(shape_.n_heads, e / shape_.n_heads, std::max(n, nq)));
  return b;
}

void Resampler::Run(Backend& backend, const float* x, int64_t n, const Buffers& b, const Matrix* query_at,
                    const EncodeArgs& args) const {
  const int64_t e = shape_.n_out, nq = shape_.n_queries;
  const auto observe = [&](const char* name, int64_t rows, const float* data) {
    if (args.observer != nullptr) (*args.observer)(std::string("mm.") + name, rows, e, data);
  };
  const auto linear = [&](const float* in, int64_t rows, int64_t n_in, const LinearWeights& w, float* out) {
    LinearRows(backend, in, rows, n_in, w, false, out, b.scratch);
  };
  const auto norm = [&](const LayerNormWeights& w, int64_t rows, float* data) {
    backend.LayerNorm({data, w.w.get(), w.b.get(), data, rows, e, shape_.eps});
  };
  linear(x, n, shape_.n_in, kv_, b.kv);
  norm(kv_norm_, n, b.kv);
  observe("ln_kv", n, b.kv);
  backend.Add({b.kv, b.at, b.at, n * e});
  linear(b.at, n, e, wk_, b.k);
  linear(b.kv, n, e, wv_, b.v);
  EmbedAll(backend, *query_, nq, b.query);
  norm(query_norm_, nq, b.query);
  observe("ln_q", nq, b.query);
  if (query_at != nullptr) {
    EmbedAll(backend, *query_at, nq, b.mix);
    backend.Add({b.query, b.mix, b.query, nq * e});
  }
  linear(b.query, nq, e, wq_, b.q);
  observe("q", nq, b.q);
  observe("k", n, b.k);
  observe("v", n, b.v);
  FullAttentionArgs attention;
  attention.n_heads = shape_.n_heads;
  attention.head_dim = e / shape_.n_heads;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(attention.head_dim));
  attention.q = b.q;
  attention.k = b.k;
  attention.v = b.v;
  attention.q_stride = attention.kv_stride = attention.out_stride = e;
  attention.n_q = nq;
  attention.n_kv = n;
  attention.out = b.mix;
  attention.scratch = b.attention_scratch;
  backend.FullAttention(attention);
  observe("mix", nq, b.mix);
  linear(b.mix, nq, e, wo_, b.query);
  observe("out", nq, b.query);
  norm(post_norm_, nq, b.query);
  observe("ln_post", nq, b.query);
  if (args.signals != nullptr && args.signals->Wants(SignalKind::kOutputs, 0)) {
    args.signals->Take({SignalKind::kOutputs, 0, 0, outputs(), b.query});
  }
  linear(b.query, nq, e, projection_, args.out);
  observe("proj", nq, args.out);
}

}  // namespace weir
