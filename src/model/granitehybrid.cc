// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Granite 4, hybrid: Mamba-2 and, in some layers, attention without rotary positions; dense or with experts and a
// shared one. Four numbers scale the embedding, the attention's scores, what each part adds to the stream, and the
// logits.
#include "model/attention_mixer.h"
#include "model/experts.h"
#include "model/hybrid_decoder.h"
#include "model/mamba2_mixer.h"

namespace weir {
namespace {

constexpr char kArch[] = "granitehybrid";

Result<std::unique_ptr<Model>> Load(const GgufFile& file, Backend& backend, Ledger& ledger) {
  const std::string arch = kArch;
  WEIR_ASSIGN_OR_RETURN(const DecoderMetadata m, ReadDecoderMetadata(file, arch, {.experts = true}));
  if (m.attends.empty()) {
    return Corrupt("{}: {}.attention.head_count_kv must have an entry for each layer", file.path(), arch);
  }
  WEIR_ASSIGN_OR_RETURN(const Mamba2Shape mamba, ReadMamba2Shape(file, arch));
  WEIR_ASSIGN_OR_RETURN(const ExpertsConfig experts, ReadExpertsConfig(file, arch, {.shared = true}));
  WeightLoader loader(file, backend, ledger);
  auto model = std::make_unique<HybridDecoder>(backend);
  ModelConfig& config = model->mutable_config();
  WEIR_RETURN_IF_ERROR(FillConfig(file, kArch, m, &config));
  // Nothing is rotated: rope.n_rot stays 0. A file that does not say so would be.
  WEIR_ASSIGN_OR_RETURN(const bool rotates, file.BoolOr(arch + ".rope.scaling.finetuned", true));
  if (rotates) {
    return Unsupported(
        "{}: {}.rope.scaling.finetuned is true or missing (Bamba); only models without rotary positions run",
        file.path(), arch);
  }
  WEIR_ASSIGN_OR_RETURN(config.attention.scale, ReadScale(file, arch + ".attention.scale", m.head_dim));
  HybridDecoder::Family family = {.arch = kArch};
  WEIR_ASSIGN_OR_RETURN(family.embedding_scale, ReadFactor(file, arch + ".embedding_scale"));
  WEIR_ASSIGN_OR_RETURN(family.residual_scale, ReadFactor(file, arch + ".residual_scale"));
  WEIR_ASSIGN_OR_RETURN(const float logit_scale, ReadFactor(file, arch + ".logit_scale"));
  family.logit_scale = 1 / logit_scale;
  family.layer = [&](WeightLoader& from, int32_t l, const std::string& blk) -> Result<HybridDecoder::Parts> {
    HybridDecoder::Parts parts;
    if (m.attends[static_cast<size_t>(l)]) {
      WEIR_ASSIGN_OR_RETURN(auto mixer,
                            AttentionMixer::Load(from, blk, m.n_embd, config.attention, m.norm_eps, {}, backend));
      parts.mixers.push_back({std::move(mixer), "attn_output.weight"});
    } else {
      WEIR_ASSIGN_OR_RETURN(auto mixer, Mamba2Mixer::Load(from, blk, m.n_embd, mamba, m.norm_eps, true, backend));
      parts.mixers.push_back({std::move(mixer), "ssm_out.weight"});
    }
    parts.ffn_norm = "ffn_norm.weight";
    if (experts.n_experts > 0) {
      WEIR_ASSIGN_OR_RETURN(parts.feed_forward, LoadExpertsFeedForward(from, blk, m.n_embd, experts, backend));
    } else {
      WEIR_ASSIGN_OR_RETURN(parts.feed_forward, LoadGatedFeedForward(from, blk, m.n_embd, m.n_ff, backend));
    }
    return parts;
  };
  WEIR_RETURN_IF_ERROR(model->Load(file, m, family, loader));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace

extern const ArchitectureInfo kGranitehybrid;
const ArchitectureInfo kGranitehybrid = {.name = kArch, .models = "Granite 4 (hybrid)", .load = Load};

}  // namespace weir
