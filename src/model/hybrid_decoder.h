// SPDX-License-Identifier: Apache-2.0
// The decoder of hybrid families: RMS norm before a layer's mixer of tokens, which is attention in some layers and a
// recurrence in the others, and before its feed-forward part.
//
//   h = x + s wo * mix(rms(x) * attn_norm)
//   x = h + s ffn(rms(h) * ffn_norm)
//
// A layer may lack one of the two, or have several mixers side by side; s is 1 in most families.
//
// Only layers that attend have keys and values in the pot: AttentionLayout counts these alone.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/architecture.h"
#include "model/feed_forward.h"
#include "model/token_mixer.h"
#include "model/weights.h"

namespace weir {

class HybridDecoder : public Model {
 public:
  explicit HybridDecoder(Backend& backend) : backend_(backend) {}

  // The parts in which families differ.
  struct Mixer {
    std::unique_ptr<TokenMixer> mixer;
    const char* out;  // its output projection: "attn_output.weight"
  };
  struct Parts {
    std::vector<Mixer> mixers;                  // side by side on one norm: their results are added; or none
    std::unique_ptr<FeedForward> feed_forward;  // or nullptr
    const char* ffn_norm = "";                  // "ffn_norm.weight"
  };
  struct Family {
    const char* arch;
    const char* output_norm = "output_norm.weight";
    // The parts of layer l, with their tensors; names are within the layer, `blk` is "blk.3.".
    std::function<Result<Parts>(WeightLoader& loader, int32_t l, const std::string& blk)> layer;
    float embedding_scale = 1, residual_scale = 1;
    float logit_scale = 1;  // becomes part of the output norm
  };
  // Reads the layers of a file whose metadata is in `m`, after FillConfig().
  Status Load(const GgufFile& file, const DecoderMetadata& m, const Family& family, WeightLoader& loader);

  const Matrix& head() const override { return output_ ? *output_ : *embedding_; }
  int64_t WeightBytesPerToken() const override;
  int64_t WorkspaceBytes(int64_t max_rows) const override;
  int64_t HostWorkspaceBytes(int64_t max_rows) const override;
  void Forward(const ForwardArgs& args) override;

  ModelConfig& mutable_config() { return config_; }

 private:
  struct LoadedMixer {
    std::unique_ptr<TokenMixer> mixer;
    std::unique_ptr<Matrix> out;
  };
  struct Layer {
    Vector attn_norm, ffn_norm;
    std::vector<LoadedMixer> mixers;
    std::unique_ptr<FeedForward> feed_forward;
  };
  Status LoadMixers(WeightLoader& loader, const std::string& blk, std::vector<Mixer> mixers, Layer* layer);
  int64_t widest() const;

  Backend& backend_;
  float norm_eps_ = 0, embedding_scale_ = 1, residual_scale_ = 1;
  std::unique_ptr<Matrix> embedding_, output_;  // [n_vocab, n_embd]; output_ is null when tied
  Vector output_norm_;
  std::vector<Layer> layers_;
};

}  // namespace weir
