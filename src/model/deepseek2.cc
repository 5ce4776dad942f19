// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V2 (arXiv 2405.04434), V3 and R1 (arXiv 2412.19437) and others whose files have this name: latent attention
// in every layer (model/latent_mixer.h), a dense feed-forward part in the first layers and experts, one of them shared,
// in the others. V2 scores groups of experts by their best one, V3 by their two best ones. Blocks that predict further
// tokens are skipped.
#include <cmath>

#include "model/hybrid_decoder.h"
#include "model/latent_mixer.h"

namespace weir {
namespace {

constexpr char kArch[] = "deepseek2";

// YaRN's magnitude is not part of the rotary embedding but of all scores: its square, with the mscale_all_dim that
// files hold as a tenth of it.
Status ApplyMagnitude(const GgufFile& file, const LatentShape& shape, AttentionLayout* attention) {
  RopeConfig& rope = attention->rope;
  double magnitude = 1;
  if (rope.scaling == RopeConfig::Scaling::kYarn) {
    const std::string scaling = std::string(kArch) + ".rope.scaling.";
    WEIR_ASSIGN_OR_RETURN(const float of_all, ReadFactorOr0(file, scaling + "yarn_log_multiplier"));
    WEIR_ASSIGN_OR_RETURN(const double factor, file.FloatOr(scaling + "attn_factor", 1.0));
    const double log_factor = std::log(std::max(rope.factor, 1.0));
    magnitude += of_all * log_factor;
    rope.attn_factor = factor / (1 + 0.1 * log_factor);
  }
  const int32_t n_key = shape.n_nope + shape.n_rope;
  attention->scale = static_cast<float>(magnitude * magnitude / std::sqrt(static_cast<double>(n_key)));
  return Status();
}

Result<std::unique_ptr<Model>> Load(const GgufFile& file, Backend& backend, Ledger& ledger) {
  const std::string arch = kArch;
  WEIR_ASSIGN_OR_RETURN(DecoderMetadata m, ReadDecoderMetadata(file, arch, {.experts = true, .own_head_sizes = true}));
  WEIR_ASSIGN_OR_RETURN(const LatentShape latent, ReadLatentShape(file, arch, m.n_heads));
  m.n_kv_heads = 1;
  m.head_dim = latent.slot();
  WEIR_ASSIGN_OR_RETURN(const float temperature, ReadFactorOr0(file, arch + ".attention.temperature_scale"));
  if (temperature != 0) {
    return Unsupported("{}: {}.attention.temperature_scale (Mistral Large 3) is not supported", file.path(), arch);
  }
  WeightLoader loader(file, backend, ledger);
  WEIR_RETURN_IF_ERROR(SkipNextLayers(file, arch, loader, &m));
  ExpertsConfig experts;
  experts.shared = true;
  experts.normalise = false;
  WEIR_ASSIGN_OR_RETURN(const int64_t n_dense,
                        BoundedIntOr(file, arch + ".leading_dense_block_count", 0, m.n_layers, 0));
  // Older files do not name the gate; only the sigmoid of V3 has biases.
  if (loader.Has("blk." + std::to_string(n_dense) + ".exp_probs_b.bias")) experts.gate = RouteGate::kSigmoid;
  WEIR_ASSIGN_OR_RETURN(experts, ReadExpertsConfig(file, arch, experts));
  if (experts.gate == RouteGate::kSoftmax) experts.group_votes = 1;

  auto model = std::make_unique<HybridDecoder>(backend);
  ModelConfig& config = model->mutable_config();
  WEIR_RETURN_IF_ERROR(FillConfig(file, kArch, m, &config));
  AttentionLayout& attention = config.attention;
  attention.values_in_keys = true;
  WEIR_ASSIGN_OR_RETURN(attention.rope, ReadRopeConfig(file, arch, m, loader));
  WEIR_RETURN_IF_ERROR(ApplyMagnitude(file, latent, &attention));
  const auto layer = [&](WeightLoader& from, int32_t l, const std::string& blk) -> Result<HybridDecoder::Parts> {
    HybridDecoder::Parts parts;
    WEIR_ASSIGN_OR_RETURN(auto mixer, LatentMixer::Load(from, blk, m.n_embd, latent, m.norm_eps, backend));
    parts.mixers.push_back({std::move(mixer), "attn_output.weight"});
    parts.ffn_norm = "ffn_norm.weight";
    if (experts.n_experts == 0 || l < n_dense) {
      WEIR_ASSIGN_OR_RETURN(parts.feed_forward, LoadGatedFeedForward(from, blk, m.n_embd, m.n_ff, backend));
    } else {
      WEIR_ASSIGN_OR_RETURN(parts.feed_forward, LoadExpertsFeedForward(from, blk, m.n_embd, experts, backend));
    }
    return parts;
  };
  WEIR_RETURN_IF_ERROR(model->Load(file, m, {.arch = kArch, .layer = layer}, loader));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace

extern const ArchitectureInfo kDeepseek2;
const ArchitectureInfo kDeepseek2 = {
    .name = kArch, .models = "DeepSeek-V2, V3, R1, Kimi-K2, GLM-4.7-Flash", .load = Load};

}  // namespace weir
