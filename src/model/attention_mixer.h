// SPDX-License-Identifier: Apache-2.0
// Attention as a layer of a hybrid model: optional norms on the heads of q and k, optional sigmoid gate on the result
// (Qwen3-Next, Qwen3.5), whose rows are stored with those of q, head by head.
#pragma once

#include <memory>
#include <string>

#include "model/token_mixer.h"
#include "model/weights.h"

namespace weir {

class AttentionMixer : public TokenMixer {
 public:
  struct Options {
    bool head_norms = false;  // attn_q_norm, attn_k_norm
    bool gated = false;       // attn_q holds [q, gate] of every head
  };
  // Tensors of layer `blk` ("blk.3."). `heads`: n_heads, n_kv_heads, head_dim.
  static Result<std::unique_ptr<TokenMixer>> Load(WeightLoader& loader, const std::string& blk, int64_t n_embd,
                                                  const AttentionLayout& heads, float norm_eps, const Options& options,
                                                  Backend& backend);

  int64_t n_out() const override { return q_dim_; }
  int64_t WeightBytes() const override;
  int64_t WorkspaceBytes(int64_t n_rows) const override;
  int64_t widest() const override { return n_embd_; }
  void Run(const Call& call) override;

 private:
  explicit AttentionMixer(Backend& backend) : backend_(backend) {}
  struct Rooms {
    float *q, *k, *v, *gate;
  };
  Rooms LayOut(Workspace* space, int64_t n) const;

  Backend& backend_;
  int64_t n_embd_ = 0, q_dim_ = 0, kv_dim_ = 0;
  int32_t head_dim_ = 0;
  float norm_eps_ = 0;
  std::unique_ptr<Matrix> wq_, wk_, wv_, w_gate_;
  Vector bq_, bk_, bv_, q_norm_, k_norm_;
};

}  // namespace weir
