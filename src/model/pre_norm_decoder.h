// SPDX-License-Identifier: Apache-2.0
// The decoder that most families share: RMS norm before attention and before a gated feed-forward layer, rotary
// positions, grouped KV heads, residual stream in F32. An architecture file maps its metadata and tensor names to these
// fields; missing parts stay empty.
//
//   h = x + post(wo * attend(norm(wq * n), norm(wk * n), wv * n)),  n = rms(x) * attn_norm
//   x = h + post(down * (act(gate * m) . (up * m))),                m = rms(h) * ffn_norm
//
// norm (of every head of q and k, or of all heads at once) and post (of a block's output) are RMS norms that some
// families have. Options leave out the first norms, replace them by layer norms, put both halves side by side on one
// norm of the stream (x += wo * ... + down * ..., m = n), leave out the gate (act(up * m)), or have experts
// (model/experts.h) in place of the second line's products, in all layers but the first
// `arch`.leading_dense_block_count.
#pragma once

#include <memory>
#include <vector>

#include "model/architecture.h"
#include "model/experts.h"
#include "model/weights.h"
#include "ops/xielu.h"

namespace weir {

struct PreNormLayer {
  Vector attn_norm, ffn_norm;              // [n_embd] or empty
  Vector b_attn_norm, b_ffn_norm;          // of layer norms
  std::unique_ptr<Matrix> wq, wk, wv, wo;  // [heads * head_dim, n_embd] ..., wo [n_embd, n_heads * head_dim]
  Vector bq, bk, bv, bo;                   // biases or empty
  Vector q_norm, k_norm;                   // [head_dim], [heads * head_dim] or empty
  Vector sinks;                            // [n_heads] or empty
  Vector attn_post_norm, ffn_post_norm;    // [n_embd] or empty
  std::unique_ptr<Matrix> gate, up, down;  // [n_ff, n_embd] twice, [n_embd, n_ff]; gate may be null
  Vector b_gate, b_up, b_down;
  Experts experts;  // in place of gate, up and down where the model has some
};

class PreNormDecoder : public Model {
 public:
  explicit PreNormDecoder(Backend& backend) : backend_(backend) {}

  // All but the first two: no gate, act(up).
  enum class Gate { kSilu, kGeluTanh, kNoneGeluTanh, kNoneGelu, kNoneSquaredRelu, kNoneXielu };
  struct Options {
    bool interleaved_rope = false;  // reorder q and k rows to half-split pairs
    bool head_norms = false;        // blk.L.attn_q_norm, attn_k_norm
    bool wide_norms = false;        // the same, each over all heads at once
    bool pre_norms = true;          // blk.L.attn_norm, ffn_norm; false: the halves read the stream itself
    bool post_norms = false;        // blk.L.post_attention_norm, post_ffw_norm
    bool layer_norms = false;       // layer norms for RMS norms
    bool norm_biases = true;        // and they have biases
    bool parallel = false;          // both halves read attn_norm's output
    const char* ffn_norm = "ffn_norm";
    bool fused_qkv = false;         // blk.L.attn_qkv holds q, k and v
    bool fused_bias = false;        // and attn_qkv.bias their biases
    bool fused_gate = false;        // blk.L.ffn_up holds gate and up
    bool halved_ff = false;         // the file's feed_forward_length counts gate and up together
    bool scaled_embedding = false;  // token embeddings are multiplied by sqrt(n_embd)
    float embedding_scale = 1;      // and by this
    float residual_scale = 1;       // of what each half adds to the stream
    float logit_scale = 1;          // becomes part of output_norm
    // > 0: queries at position p are multiplied by 1 + temperature * ln(1 + floor(p / temperature_length)).
    float temperature = 0, temperature_length = 0;
    Gate gate = Gate::kSilu;
    std::vector<XieluFactors> xielu = {};  // [n_layers], of kNoneXielu
    bool experts = false;                  // a file may have experts: `arch`.expert_count
    ExpertsConfig of_experts = {};         // what the family says of them
    float clamp = 0;                       // > 0: bound of q, k and v, after norms and biases
    bool sinks = false;                    // blk.L.attn_sinks
  };
  // Reads the standard metadata under `arch` and binds the standard tensor names; biases are optional, and q, k and v
  // may be fused. Blocks that predict further tokens are skipped.
  Status LoadStandard(const GgufFile& file, const char* arch, const Options& options, Ledger& ledger);

  const Matrix& head() const override { return output_ ? *output_ : *embedding_; }
  const float* head_bias() const override { return output_bias_.get(); }
  int64_t WeightBytesPerToken() const override;
  int64_t WorkspaceBytes(int64_t max_rows) const override;
  int64_t HostWorkspaceBytes(int64_t max_rows) const override;
  void Forward(const ForwardArgs& args) override;
  // The first layers add parts of a picture's rows.
  bool CanPause(int32_t layer) const override { return layer >= config_.n_deepstack; }

  // Layers after which a picture's rows are added to the stream: `arch`.n_deepstack_layers, none if the file has no
  // such key. Call after LoadStandard().
  Status ReadDeepstack(const GgufFile& file, const std::string& arch);
  // For an architecture's own metadata, after LoadStandard().
  ModelConfig& mutable_config() { return config_; }

 private:
  Status LoadLayer(WeightLoader& loader, int32_t l);
  Status LoadNorm(WeightLoader& loader, const std::string& name, Vector* w, Vector* b);
  void RunGate(int32_t l, const float* gate, const float* up, float* y, int64_t n);
  // Multiplies queries [n, q_dim] by the temperature at their positions.
  void ScaleQueries(const int32_t* positions, int64_t n, int64_t q_dim, float* q);

  Backend& backend_;
  Options options_;
  ExpertsConfig experts_;
  int32_t n_dense_ = 0;  // layers before those with experts
  bool HasExperts(int32_t l) const { return experts_.n_experts > 0 && l >= n_dense_; }
  bool HasGate() const { return options_.gate == Gate::kSilu || options_.gate == Gate::kGeluTanh; }
  float norm_eps_ = 0;
  std::unique_ptr<Matrix> embedding_;  // [n_vocab, n_embd]
  std::unique_ptr<Matrix> output_;     // [n_vocab, n_embd], or null when tied to the embedding
  Vector output_norm_, b_output_norm_, output_bias_;
  std::vector<PreNormLayer> layers_;
};

}  // namespace weir
