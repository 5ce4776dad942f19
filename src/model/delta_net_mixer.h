// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet (arXiv 2412.06464, section 3.4) as Qwen3-Next and Qwen3.5 have it: q, k and v pass a short convolution
// and silu, q and k are brought to length 1, the delta rule follows, and its result is normalised head by head and
// gated by silu(z).
#pragma once

#include <memory>
#include <string>

#include "model/token_mixer.h"
#include "model/weights.h"

namespace weir {

// Keys `arch`.ssm.*.
struct DeltaNetShape {
  int32_t n_taps = 0, n_k_heads = 0, n_v_heads = 0, d_k = 0, d_v = 0;
  // Heads of values that share a head of keys are neighbours (DeltaRuleArgs::grouped), and ssm_ba holds, for each head
  // of keys, the rows of their beta, then of their alpha. Otherwise these are ssm_beta and ssm_alpha.
  bool grouped = false;
  int64_t k_dim() const { return int64_t{n_k_heads} * d_k; }
  int64_t v_dim() const { return int64_t{n_v_heads} * d_v; }
};
Result<DeltaNetShape> ReadDeltaNetShape(const GgufFile& file, const std::string& arch);

class DeltaNetMixer : public TokenMixer {
 public:
  static Result<std::unique_ptr<TokenMixer>> Load(WeightLoader& loader, const std::string& blk, int64_t n_embd,
                                                  const DeltaNetShape& shape, float norm_eps, Backend& backend);

  int64_t n_out() const override { return shape_.v_dim(); }
  int64_t n_state() const override;
  int64_t WeightBytes() const override;
  int64_t WorkspaceBytes(int64_t n_rows) const override;
  int64_t widest() const override { return n_embd_; }
  void Run(const Call& call) override;

 private:
  explicit DeltaNetMixer(Backend& backend) : backend_(backend) {}
  struct Rooms {
    float *q, *k, *v, *z, *alpha, *beta, *gates;
  };
  Rooms LayOut(Workspace* space, int64_t n) const;

  Backend& backend_;
  DeltaNetShape shape_;
  int64_t n_embd_ = 0;
  float norm_eps_ = 0;
  std::unique_ptr<Matrix> wq_, wk_, wv_, wz_, w_alpha_, w_beta_;
  Vector q_taps_, k_taps_, v_taps_;  // [n_taps, columns]
  Vector a_, dt_bias_;               // [n_v_heads]
  Vector norm_;                      // [d_v]
  Vector q_scale_, k_scale_;         // [d_k], of the norms that bring q and k to their lengths
};

}  // namespace weir
