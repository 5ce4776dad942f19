// SPDX-License-Identifier: Apache-2.0
// The decoder of hybrid families: RMS norm before a layer's mixer of tokens, which is attention in some layers and a
// recurrence in the others, and before a gated feed-forward layer.
//
//   h = x + wo * mix(rms(x) * attn_norm)
//   x = h + down * (silu(gate * m) . (up * m)),   m = rms(h) * ffn_norm
//
// Only layers that attend have keys and values in the pot: AttentionLayout counts these alone.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/architecture.h"
#include "model/token_mixer.h"
#include "model/weights.h"

namespace weir {

class HybridDecoder : public Model {
 public:
  explicit HybridDecoder(Backend& backend) : backend_(backend) {}

  // The parts in which families differ.
  struct Family {
    const char* arch;
    const char* ffn_norm;     // "ffn_norm.weight", within a layer
    const char* output_norm;  // "output_norm.weight"
    // The mixer of layer l and the name of its output projection within the layer.
    struct Mixer {
      std::unique_ptr<TokenMixer> mixer;
      const char* out;
    };
    std::function<Result<Mixer>(WeightLoader& loader, int32_t l, const std::string& blk)> mixer;
  };
  // Reads the layers of a file whose metadata is in `m`. The caller then sets config().attention.rope's exceptions.
  Status Load(const GgufFile& file, const DecoderMetadata& m, const Family& family, WeightLoader& loader);

  const Matrix& head() const override { return output_ ? *output_ : *embedding_; }
  int64_t WeightBytesPerToken() const override;
  int64_t WorkspaceBytes(int64_t max_rows) const override;
  void Forward(const ForwardArgs& args) override;

  ModelConfig& mutable_config() { return config_; }

 private:
  struct Layer {
    Vector attn_norm, ffn_norm;
    std::unique_ptr<TokenMixer> mixer;
    std::unique_ptr<Matrix> out;
    std::unique_ptr<Matrix> gate, up, down;
  };
  int64_t widest() const;

  Backend& backend_;
  float norm_eps_ = 0;
  std::unique_ptr<Matrix> embedding_, output_;  // [n_vocab, n_embd]; output_ is null when tied
  Vector output_norm_;
  std::vector<Layer> layers_;
};

}  // namespace weir
