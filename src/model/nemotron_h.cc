// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Nemotron-H and Nemotron Nano 2 (arXiv 2504.03624): every layer is one of Mamba-2, attention without rotary positions,
// or a feed-forward layer with the square of relu.
#include "model/nemotron_h.h"

#include <string>

#include "model/attention_mixer.h"
#include "model/hybrid_decoder.h"
#include "model/mamba2_mixer.h"

namespace weir {

Result<std::unique_ptr<Model>> LoadNemotronH(const GgufFile& file, const char* name, bool has_experts, Backend& backend,
                                             Ledger& ledger) {
  const std::string arch = name;
  WEIR_ASSIGN_OR_RETURN(DecoderMetadata m, ReadDecoderMetadata(file, arch, {.experts = has_experts}));
  if (m.attends.empty() || m.feeds_forward.empty()) {
    return Corrupt("{}: {}.attention.head_count_kv and {}.feed_forward_length must have an entry for each layer",
                   file.path(), arch, arch);
  }
  WEIR_ASSIGN_OR_RETURN(const Mamba2Shape mamba, ReadMamba2Shape(file, arch));
  ExpertsConfig experts;
  if (has_experts) {
    experts = {.act = ExpertsConfig::Act::kSquaredRelu, .shared = true, .gate = RouteGate::kSigmoid};
    WEIR_ASSIGN_OR_RETURN(experts, ReadExpertsConfig(file, arch, experts));
    WEIR_ASSIGN_OR_RETURN(const int64_t latent, BoundedIntOr(file, arch + ".moe_latent_size", 0, 1 << 20, 0));
    if (latent > 0) {
      return Unsupported(
          "{}: experts of a smaller width than the model's ({}.moe_latent_size is {}; Nemotron 3 Super) "
          "are not supported",
          file.path(), arch, latent);
    }
  }
  WeightLoader loader(file, backend, ledger);
  WEIR_RETURN_IF_ERROR(SkipNextLayers(file, arch, loader, &m));
  auto model = std::make_unique<HybridDecoder>(backend);
  ModelConfig& config = model->mutable_config();
  WEIR_RETURN_IF_ERROR(FillConfig(file, name, m, &config));  // rope.n_rot stays 0
  const auto layer = [&](WeightLoader& from, int32_t l, const std::string& blk) -> Result<HybridDecoder::Parts> {
    HybridDecoder::Parts parts;
    if (m.attends[static_cast<size_t>(l)]) {
      WEIR_ASSIGN_OR_RETURN(auto mixer,
                            AttentionMixer::Load(from, blk, m.n_embd, config.attention, m.norm_eps, {}, backend));
      parts.mixers.push_back({std::move(mixer), "attn_output.weight"});
    } else if (m.feeds_forward[static_cast<size_t>(l)]) {
      parts.ffn_norm = "attn_norm.weight";
      if (experts.n_experts > 0) {
        WEIR_ASSIGN_OR_RETURN(parts.feed_forward, LoadExpertsFeedForward(from, blk, m.n_embd, experts, backend));
      } else {
        WEIR_ASSIGN_OR_RETURN(parts.feed_forward, LoadSquaredReluFeedForward(from, blk, m.n_embd, m.n_ff, backend));
      }
    } else {
      WEIR_ASSIGN_OR_RETURN(auto mixer, Mamba2Mixer::Load(from, blk, m.n_embd, mamba, m.norm_eps, true, backend));
      parts.mixers.push_back({std::move(mixer), "ssm_out.weight"});
    }
    return parts;
  };
  WEIR_RETURN_IF_ERROR(model->Load(file, m, {.arch = name, .layer = layer}, loader));
  return std::unique_ptr<Model>(std::move(model));
}

extern const ArchitectureInfo kNemotronH;
const ArchitectureInfo kNemotronH = {
    .name = "nemotron_h",
    .models = "Nemotron-H, Nemotron Nano 2",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      return LoadNemotronH(file, "nemotron_h", false, backend, ledger);
    },
};

}  // namespace weir
