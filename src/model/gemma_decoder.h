// SPDX-License-Identifier: Apache-2.0
// The decoder of Gemma 4 and Gemma 3n. As Gemma 3 (norms of q and k, norms behind both halves of a block, layers with a
// sliding window), and:
// - values are normalised too, without weights; attention scores have no scale;
// - layers may differ in head size, KV heads and the width of their feed-forward part;
// - the last layers have no keys and values: they read those of the last layer before them of their kind;
// - every layer adds a vector of the token's own (per-layer embeddings), gated by the residual stream:
//     x += norm(proj(gelu(gate(x)) . e)),  e = (norm(model_l(x0)) + table_l[token]) / sqrt(2),  x0 the input embeddings
//
// Gemma 3n alone has several residual streams (model/altup.h): a layer's x is a prediction of one of them, its result
// corrects all, and the token's own vector is added to the others. Beside its attention lies a bottleneck (Laurel):
//     x = (x + post(attn) + n + norm(right(left(n)))) / sqrt(2),  n the attention's input
// and the gates of its first layers are sparse (ops/sparse_gate.h).
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "model/altup.h"
#include "model/architecture.h"
#include "model/weights.h"

namespace weir {

// A metadata number for each layer: a list, or one for all of them.
Result<std::vector<int32_t>> ReadPerLayer(const GgufFile& file, const std::string& key, int32_t n_layers, int64_t least,
                                          int64_t most);

class GemmaDecoder : public Model {
 public:
  explicit GemmaDecoder(Backend& backend) : backend_(backend) {}

  // In which files and families differ, beside the layers' sizes.
  struct Family {
    const char* arch;
    bool keys_are_values = false;     // layers without a window, all of them, may have no projection of values
    bool streams = false;             // several residual streams, and what else Gemma 3n has
    std::vector<float> gate_cutoffs;  // [n_layers], SparseGateArgs::cutoff, not finite: not sparse; or empty: none
  };
  // What both families say alike, into config(): all but windows and layers. `cap`: of the logits, of files that name
  // none, or 0: no cap. Returns 1 for each layer with a window and 0 for the others.
  Result<std::vector<int32_t>> ReadAttention(const GgufFile& file, const char* arch, const DecoderMetadata& m,
                                             WeightLoader& loader, double cap);
  // The layers, whose keys those of the last `arch`.attention.shared_kv_layers read; into config().
  Status SetLayers(const GgufFile& file, const char* arch, std::vector<LayerHeads> layers);
  // Every tensor. config() is complete but for the logits' cap.
  Status Load(const GgufFile& file, const DecoderMetadata& m, const Family& family, WeightLoader& loader,
              Ledger& ledger);

  ModelConfig& mutable_config() { return config_; }
  const Matrix& head() const override { return output_ ? *output_ : *embedding_; }
  int64_t WeightBytesPerToken() const override;
  int64_t WorkspaceBytes(int64_t max_rows) const override {
    Workspace space(nullptr);
    Memory memory;
    return LayOut(max_rows, space, &memory);
  }
  void Forward(const ForwardArgs& args) override;

 private:
  struct Layer {
    Vector attn_norm, attn_post_norm, ffn_norm, ffn_post_norm, input_post_norm;  // [n_embd]
    Vector q_norm, k_norm;                                                       // [head_dim]
    std::unique_ptr<Matrix> q, k, v, out;                                        // v: none where it is k
    std::unique_ptr<Matrix> gate, up, down;
    std::unique_ptr<Matrix> input_model, input_gate, input_proj;  // [n_own, n_embd] twice, [n_embd, n_own]
    int64_t n_ff = 0;
    float cutoff = -std::numeric_limits<float>::infinity();
    Vector out_scale;                                   // [1], or empty
    std::unique_ptr<Matrix> laurel_left, laurel_right;  // [n_laurel, n_embd], [n_embd, n_laurel]
    Vector laurel_norm;
  };
  // Working memory of a pass. A block's three parts are never live together and share theirs.
  struct Memory {
    float *norm, *input;          // [n_embd] a row
    float *laurel, *laurel_left;  // [n_embd], [n_laurel]
    float *q, *k, *v, *mix;       // attention
    float *gate, *up;             // feed-forward
    float *own, *own_gate;        // the token's own vector, [n_own] a row
    AltUp::Memory streams;
    void* scratch;
  };
  int64_t LayOut(int64_t n, Workspace space, Memory* memory) const;
  Status LoadLayer(WeightLoader& loader, int32_t l);
  Status LoadLaurel(const GgufFile& file);
  Status LoadOwn(const GgufFile& file, WeightLoader& loader, Ledger& ledger);

  Backend& backend_;
  float norm_eps_ = 0;
  int32_t last_stored_ = 0;            // the last layer that stores keys and values
  bool has_values_ = true;             // layers without a window have a projection for their values
  int64_t n_own_ = 0, n_ff_most_ = 0;  // n_own_: numbers of a token's own vector in each layer, or 0
  int64_t n_laurel_ = 0;
  std::unique_ptr<Matrix> embedding_, output_;
  std::unique_ptr<Matrix> own_table_;  // [n_vocab * n_layers, n_own]: of token t and layer l the row t * n_layers + l
  Vector output_norm_, own_norm_;
  Vector ones_;                   // the weights of norms without
  std::unique_ptr<AltUp> altup_;  // or nullptr: one stream
  std::vector<Layer> layers_;
};

}  // namespace weir
