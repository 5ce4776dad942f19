// SPDX-License-Identifier: Apache-2.0
#include "model/attention_mixer.h"

#include <vector>

namespace weir {

Result<std::unique_ptr<TokenMixer>> AttentionMixer::Load(WeightLoader& loader, const std::string& blk, int64_t n_embd,
                                                         const AttentionLayout& heads, float norm_eps,
                                                         const Options& options, Backend& backend) {
  std::unique_ptr<AttentionMixer> out(new AttentionMixer(backend));
  out->n_embd_ = n_embd;
  out->head_dim_ = heads.head_dim;
  out->norm_eps_ = norm_eps;
  const int64_t q_dim = out->q_dim_ = int64_t{heads.n_heads} * heads.head_dim;
  const int64_t kv_dim = out->kv_dim_ = int64_t{heads.n_kv_heads} * heads.head_dim;
  if (options.gated) {
    // Of every head: its rows of q, then those of its gate.
    std::vector<int32_t> q, gate;
    for (int64_t row = 0; row < q_dim; ++row) {
      const int64_t at = row / heads.head_dim * 2 * heads.head_dim + row % heads.head_dim;
      q.push_back(static_cast<int32_t>(at));
      gate.push_back(static_cast<int32_t>(at + heads.head_dim));
    }
    WEIR_RETURN_IF_ERROR(loader.LoadPicked(blk + "attn_q.weight", 2 * q_dim, n_embd, q, &out->wq_));
    WEIR_RETURN_IF_ERROR(loader.LoadPicked(blk + "attn_q.weight", 2 * q_dim, n_embd, gate, &out->w_gate_));
  } else {
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_q.weight", q_dim, n_embd, &out->wq_));
    WEIR_RETURN_IF_ERROR(loader.LoadOptional(blk + "attn_q.bias", q_dim, &out->bq_));
  }
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_k.weight", kv_dim, n_embd, &out->wk_));
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_v.weight", kv_dim, n_embd, &out->wv_));
  WEIR_RETURN_IF_ERROR(loader.LoadOptional(blk + "attn_k.bias", kv_dim, &out->bk_));
  WEIR_RETURN_IF_ERROR(loader.LoadOptional(blk + "attn_v.bias", kv_dim, &out->bv_));
  if (options.head_norms) {
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_q_norm.weight", heads.head_dim, &out->q_norm_));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_k_norm.weight", heads.head_dim, &out->k_norm_));
  }
  return std::unique_ptr<TokenMixer>(std::move(out));
}

int64_t AttentionMixer::WeightBytes() const {
  return wq_->bytes() + wk_->bytes() + wv_->bytes() + (w_gate_ ? w_gate_->bytes() : 0);
}

AttentionMixer::Rooms AttentionMixer::LayOut(Workspace* space, int64_t n) const {
  Rooms rooms;
  rooms.q = space->Floats(n * q_dim_);
  rooms.k = space->Floats(n * kv_dim_);
  rooms.v = space->Floats(n * kv_dim_);
  rooms.gate = w_gate_ ? space->Floats(n * q_dim_) : nullptr;
  return rooms;
}

int64_t AttentionMixer::WorkspaceBytes(int64_t n_rows) const {
  Workspace space(nullptr);
  LayOut(&space, n_rows);
  return space.used();
}

void AttentionMixer::Run(const Call& call) {
  const int64_t n = call.n_rows;
  Workspace space = call.space;
  const Rooms r = LayOut(&space, n);
  std::vector<MatMulOut> outs = {{wq_.get(), r.q, q_dim_, bq_.get(), false},
                                 {wk_.get(), r.k, kv_dim_, bk_.get(), false},
                                 {wv_.get(), r.v, kv_dim_, bv_.get(), false}};
  if (w_gate_) outs.push_back({w_gate_.get(), r.gate, q_dim_, nullptr, false});
  backend_.MatMul({call.x, n_embd_, n, n_embd_, outs, call.scratch});
  if (!q_norm_.data.empty()) {
    backend_.RmsNorm({r.q, q_norm_.get(), r.q, n * q_dim_ / head_dim_, head_dim_, norm_eps_});
    backend_.RmsNorm({r.k, k_norm_.get(), r.k, n * kv_dim_ / head_dim_, head_dim_, norm_eps_});
  }
  if (call.observe) {
    call.observe("q", q_dim_, r.q);
    call.observe("k", kv_dim_, r.k);
    call.observe("v", kv_dim_, r.v);
  }
  call.attender->Attend(static_cast<int32_t>(place_), r.q, r.k, r.v, call.out);
  if (w_gate_) backend_.SigmoidGate({r.gate, call.out, call.out, n * q_dim_});
}

}  // namespace weir
