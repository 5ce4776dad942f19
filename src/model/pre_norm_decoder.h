// The decoder most families share: RMS norm before attention and before a gated (SiLU) feed-forward layer, rotary
// positions, grouped KV heads, residual stream in F32. An architecture file says how its metadata and tensor names map
// to these fields; what it does not have stays empty.
//
//   h = x + wo * attend(wq * n, wk * n, wv * n),  n = rms(x) * attn_norm
//   x = h + down * (silu(gate * m) . (up * m)),   m = rms(h) * ffn_norm
#pragma once

#include <memory>
#include <vector>

#include "model/architecture.h"
#include "model/weights.h"

namespace weir {

struct PreNormLayer {
  Vector attn_norm, ffn_norm;              // [n_embd]
  std::unique_ptr<Matrix> wq, wk, wv, wo;  // [heads * head_dim, n_embd] ..., wo [n_embd, n_heads * head_dim]
  Vector bq, bk, bv, bo;                   // biases or empty
  std::unique_ptr<Matrix> gate, up, down;  // [n_ff, n_embd] twice, [n_embd, n_ff]
  Vector b_gate, b_up, b_down;
};

class PreNormDecoder : public Model {
 public:
  explicit PreNormDecoder(Backend& backend) : backend_(backend) {}

  struct Options {
    bool interleaved_rope = false;  // reorder q and k rows to half-split pairs
  };
  // Reads the standard metadata under `arch` and binds the standard tensor names; optional biases where present.
  Status LoadStandard(const GgufFile& file, const char* arch, const Options& options, Ledger& ledger);

  const Matrix& head() const override { return output_ ? *output_ : *embedding_; }
  int64_t WeightBytesPerToken() const override;
  int64_t WorkspaceBytes(int64_t max_rows) const override;
  void Forward(const ForwardArgs& args) override;

 private:
  Backend& backend_;
  float norm_eps_ = 0;
  std::unique_ptr<Matrix> embedding_;  // [n_vocab, n_embd]
  std::unique_ptr<Matrix> output_;     // [n_vocab, n_embd], or null when tied to the embedding
  Vector output_norm_;
  std::vector<PreNormLayer> layers_;
};

}  // namespace weir
