// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): all heads share one row of each token, a
// latent c of `rank` numbers and a rotated key k_r of n_rope. A head's keys and values are products of c, and these
// products move to the other side of the dot products: the pot holds [k_r, c] of one KV head, once, and
//
//   score_h = [q_r, K_h^T q] . [k_r, c],   out_h = V_h * (sum of the c that h attends to)
//
// where q and q_r are the two parts of a head's query. Tensors of a layer:
//
//   attn_q, or attn_q_a, attn_q_a_norm, attn_q_b   [n_heads * (n_nope + n_rope), n_embd], through q_rank numbers or not
//   attn_kv_a_mqa, attn_kv_a_norm                  [rank + n_rope, n_embd], [rank]: c, then k_r, whose pairs are
//                                                  neighbours in the file, as those of q_r
//   attn_k_b, attn_v_b                             [n_heads, rank, n_nope], [n_heads, n_value, rank]
//   or attn_kv_b                                   [n_heads * (n_nope + n_value), rank], of older files
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/token_mixer.h"
#include "model/weights.h"

namespace weir {

struct LatentShape {
  int32_t n_heads = 0, n_nope = 0, n_rope = 0, n_value = 0;
  int32_t rank = 0, q_rank = 0;  // q_rank 0: queries are made at once
  int32_t slot() const { return n_rope + rank; }
};

// `arch`.attention.kv_lora_rank, q_lora_rank, key_length_mla (key_length in older files), value_length_mla
// (value_length) and rope.dimension_count.
Result<LatentShape> ReadLatentShape(const GgufFile& file, const std::string& arch, int32_t n_heads);

class LatentMixer : public TokenMixer {
 public:
  // REQUIRES: attention with one KV head of shape.slot() numbers, the first n_rope rotated, and
  // AttentionLayout::values_in_keys. kUnsupported on a backend whose memory is not the host's.
  static Result<std::unique_ptr<TokenMixer>> Load(WeightLoader& loader, const std::string& blk, int64_t n_embd,
                                                  const LatentShape& shape, float norm_eps, Backend& backend);

  int64_t n_out() const override { return int64_t{shape_.n_heads} * shape_.n_value; }
  int64_t WeightBytes() const override;
  int64_t WorkspaceBytes(int64_t n_rows) const override;
  int64_t widest() const override;
  void Run(const Call& call) override;

 private:
  LatentMixer(int64_t n_embd, const LatentShape& shape, float norm_eps, Backend& backend)
      : backend_(backend), n_embd_(n_embd), shape_(shape), norm_eps_(norm_eps) {}
  Status LoadHeads(WeightLoader& loader, const std::string& blk);
  struct Rooms {
    float *q_low, *q, *c,
        *k_r;  // [q_rank], [n_heads * (n_nope + n_rope)]: all n_nope, then all n_rope; [rank], [n_rope]
    float *query, *slot, *mixed;  // [n_heads * slot], [slot], [n_heads * slot]
  };
  Rooms LayOut(Workspace* space, int64_t n) const;

  Backend& backend_;
  const int64_t n_embd_;
  const LatentShape shape_;
  const float norm_eps_;
  std::unique_ptr<Matrix> q_low_, q_, c_, k_r_;
  Vector q_norm_, c_norm_;
  std::vector<std::unique_ptr<Matrix>> k_heads_, v_heads_;  // [rank, n_nope], [n_value, rank]
};

}  // namespace weir
