// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// LFM2 (Liquid Foundation Models 2, 2025): gated short convolutions, and attention with norms on the heads of q and k
// in the layers that have KV heads.
#include "model/lfm2.h"

#include <string>

#include "model/attention_mixer.h"
#include "model/hybrid_decoder.h"
#include "model/short_conv_mixer.h"

namespace weir {

Result<std::unique_ptr<Model>> LoadLfm2(const GgufFile& file, const char* name, const ExpertsConfig& of_family,
                                        Backend& backend, Ledger& ledger) {
  const std::string arch = name;
  WEIR_ASSIGN_OR_RETURN(const DecoderMetadata m, ReadDecoderMetadata(file, arch, {.experts = true}));
  WEIR_ASSIGN_OR_RETURN(const ExpertsConfig experts, ReadExpertsConfig(file, arch, of_family));
  WEIR_ASSIGN_OR_RETURN(const int64_t n_dense,
                        BoundedIntOr(file, arch + ".leading_dense_block_count", 0, m.n_layers, 0));
  WEIR_ASSIGN_OR_RETURN(const int64_t n_taps, BoundedInt(file, arch + ".shortconv.l_cache", 2, kMaxConvTaps));
  WeightLoader loader(file, backend, ledger);
  auto model = std::make_unique<HybridDecoder>(backend);
  ModelConfig& config = model->mutable_config();
  WEIR_RETURN_IF_ERROR(FillConfig(file, name, m, &config));
  WEIR_ASSIGN_OR_RETURN(config.attention.rope, ReadRopeConfig(file, arch, m, loader));
  const auto layer = [&](WeightLoader& from, int32_t l, const std::string& blk) -> Result<HybridDecoder::Parts> {
    HybridDecoder::Parts parts;
    if (m.attends.empty() || m.attends[static_cast<size_t>(l)]) {
      WEIR_ASSIGN_OR_RETURN(auto mixer, AttentionMixer::Load(from, blk, m.n_embd, config.attention, m.norm_eps,
                                                             {.head_norms = true}, backend));
      parts.mixers.push_back({std::move(mixer), "attn_output.weight"});
    } else {
      WEIR_ASSIGN_OR_RETURN(auto mixer,
                            ShortConvMixer::Load(from, blk, m.n_embd, static_cast<int32_t>(n_taps), backend));
      parts.mixers.push_back({std::move(mixer), "shortconv.out_proj.weight"});
    }
    parts.ffn_norm = "ffn_norm.weight";
    if (experts.n_experts > 0 && l >= n_dense) {
      WEIR_ASSIGN_OR_RETURN(parts.feed_forward, LoadExpertsFeedForward(from, blk, m.n_embd, experts, backend));
    } else {
      WEIR_ASSIGN_OR_RETURN(parts.feed_forward, LoadGatedFeedForward(from, blk, m.n_embd, m.n_ff, backend));
    }
    return parts;
  };
  // The norm before the head is called that of the embedding, but not in every file.
  const char* const norm = loader.Has("output_norm.weight") ? "output_norm.weight" : "token_embd_norm.weight";
  const HybridDecoder::Family family = {.arch = name, .output_norm = norm, .layer = layer};
  WEIR_RETURN_IF_ERROR(model->Load(file, m, family, loader));
  WEIR_RETURN_IF_ERROR(ReadWindows(file, arch, 0, 0, &config.attention));
  return std::unique_ptr<Model>(std::move(model));
}

extern const ArchitectureInfo kLfm2;
const ArchitectureInfo kLfm2 = {
    .name = "lfm2",
    .models = "LFM2, LFM2.5",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      return LoadLfm2(file, "lfm2", {}, backend, ledger);
    },
};

}  // namespace weir
