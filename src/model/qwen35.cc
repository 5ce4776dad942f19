// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Qwen3.5 and later dense Qwens of its kind: three layers of gated DeltaNet to one of gated attention, whose heads are
// rotated in part. Positions of text are the same on all three axes (Qwen3-VL's interleaved order), so that they rotate
// like plain ones. The blocks that predict several tokens at once (nextn) are not loaded.
#include "model/attention_mixer.h"
#include "model/delta_net_mixer.h"
#include "model/hybrid_decoder.h"

namespace weir {
namespace {

constexpr char kArch[] = "qwen35";

Result<std::unique_ptr<Model>> Load(const GgufFile& file, Backend& backend, Ledger& ledger) {
  const std::string arch = kArch;
  WEIR_ASSIGN_OR_RETURN(DecoderMetadata m, ReadDecoderMetadata(file, arch));
  WEIR_ASSIGN_OR_RETURN(const DeltaNetShape delta, ReadDeltaNetShape(file, arch));
  WEIR_ASSIGN_OR_RETURN(const int64_t every, BoundedIntOr(file, arch + ".full_attention_interval", 1, m.n_layers, 4));
  WEIR_ASSIGN_OR_RETURN(const int64_t n_next, BoundedIntOr(file, arch + ".nextn_predict_layers", 0, m.n_layers - 1, 0));
  WeightLoader loader(file, backend, ledger);
  for (int32_t l = m.n_layers - static_cast<int32_t>(n_next); l < m.n_layers; ++l) {
    loader.Skip("blk." + std::to_string(l) + ".");
  }
  m.n_layers -= static_cast<int32_t>(n_next);
  auto model = std::make_unique<HybridDecoder>(backend);
  ModelConfig& config = model->mutable_config();
  WEIR_RETURN_IF_ERROR(FillConfig(file, kArch, m, &config));
  WEIR_ASSIGN_OR_RETURN(config.attention.rope, ReadRopeConfig(file, arch, m, loader));
  const auto layer = [&](WeightLoader& from, int32_t l, const std::string& blk) -> Result<HybridDecoder::Parts> {
    HybridDecoder::Parts parts;
    if ((l + 1) % every == 0) {
      parts.out = "attn_output.weight";
      WEIR_ASSIGN_OR_RETURN(parts.mixer, AttentionMixer::Load(from, blk, m.n_embd, config.attention, m.norm_eps,
                                                              {.head_norms = true, .gated = true}, backend));
    } else {
      parts.out = "ssm_out.weight";
      WEIR_ASSIGN_OR_RETURN(parts.mixer, DeltaNetMixer::Load(from, blk, m.n_embd, delta, m.norm_eps, backend));
    }
    parts.ffn_norm = "post_attention_norm.weight";
    WEIR_ASSIGN_OR_RETURN(parts.feed_forward, LoadGatedFeedForward(from, blk, m.n_embd, m.n_ff, backend));
    return parts;
  };
  WEIR_RETURN_IF_ERROR(model->Load(file, m, {.arch = kArch, .layer = layer}, loader));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace

extern const ArchitectureInfo kQwen35;
const ArchitectureInfo kQwen35 = {.name = kArch, .models = "Qwen3.5 (dense)", .load = Load};

}  // namespace weir
