// SPDX-License-Identifier: Apache-2.0
#include "model/qwen_hybrid.h"

#include <string>

#include "model/attention_mixer.h"
#include "model/delta_net_mixer.h"
#include "model/experts.h"
#include "model/hybrid_decoder.h"

namespace weir {

Result<std::unique_ptr<Model>> LoadQwenHybrid(const GgufFile& file, Backend& backend, Ledger& ledger, const char* name,
                                              const QwenHybridOptions& options) {
  const std::string arch = name;
  WEIR_ASSIGN_OR_RETURN(DecoderMetadata m, ReadDecoderMetadata(file, arch, {.experts = options.experts}));
  WEIR_ASSIGN_OR_RETURN(DeltaNetShape delta, ReadDeltaNetShape(file, arch));
  delta.grouped = options.next;
  WEIR_ASSIGN_OR_RETURN(const int64_t every, BoundedIntOr(file, arch + ".full_attention_interval", 1, m.n_layers, 4));
  ExpertsConfig experts;
  if (options.experts) {
    WEIR_ASSIGN_OR_RETURN(experts, ReadExpertsConfig(file, arch, {.shared = true, .shared_gate = true}));
    if (experts.n_experts == 0) return Corrupt("{}: {}.expert_count is 0", file.path(), arch);
  }
  WeightLoader loader(file, backend, ledger);
  WEIR_RETURN_IF_ERROR(SkipNextLayers(file, arch, loader, &m));
  auto model = std::make_unique<HybridDecoder>(backend);
  ModelConfig& config = model->mutable_config();
  WEIR_RETURN_IF_ERROR(FillConfig(file, name, m, &config));
  WEIR_ASSIGN_OR_RETURN(config.attention.rope, ReadRopeConfig(file, arch, m, loader));
  // Qwen3-Next has one axis.
  if (file.Has(arch + ".rope.dimension_sections")) {
    WEIR_RETURN_IF_ERROR(ReadAxes(file, arch, true, backend, &config));
  }
  const auto layer = [&](WeightLoader& from, int32_t l, const std::string& blk) -> Result<HybridDecoder::Parts> {
    HybridDecoder::Parts parts;
    if ((l + 1) % every == 0) {
      WEIR_ASSIGN_OR_RETURN(auto mixer, AttentionMixer::Load(from, blk, m.n_embd, config.attention, m.norm_eps,
                                                             {.head_norms = true, .gated = true}, backend));
      parts.mixers.push_back({std::move(mixer), "attn_output.weight"});
    } else {
      WEIR_ASSIGN_OR_RETURN(auto mixer, DeltaNetMixer::Load(from, blk, m.n_embd, delta, m.norm_eps, backend));
      parts.mixers.push_back({std::move(mixer), "ssm_out.weight"});
    }
    parts.ffn_norm = "post_attention_norm.weight";
    if (options.experts) {
      WEIR_ASSIGN_OR_RETURN(parts.feed_forward, LoadExpertsFeedForward(from, blk, m.n_embd, experts, backend));
    } else {
      WEIR_ASSIGN_OR_RETURN(parts.feed_forward, LoadGatedFeedForward(from, blk, m.n_embd, m.n_ff, backend));
    }
    return parts;
  };
  WEIR_RETURN_IF_ERROR(model->Load(file, m, {.arch = name, .layer = layer}, loader));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace weir
