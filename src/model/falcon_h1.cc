// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Falcon-H1 (arXiv 2507.22448, section 2.1): in every layer attention and Mamba-2 side by side on one norm of the
// stream. Its many multipliers are part of the file's weights.
#include "model/attention_mixer.h"
#include "model/hybrid_decoder.h"
#include "model/mamba2_mixer.h"

namespace weir {
namespace {

constexpr char kArch[] = "falcon-h1";

Result<std::unique_ptr<Model>> Load(const GgufFile& file, Backend& backend, Ledger& ledger) {
  const std::string arch = kArch;
  WEIR_ASSIGN_OR_RETURN(const DecoderMetadata m, ReadDecoderMetadata(file, arch));
  WEIR_ASSIGN_OR_RETURN(const Mamba2Shape mamba, ReadMamba2Shape(file, arch));
  WeightLoader loader(file, backend, ledger);
  auto model = std::make_unique<HybridDecoder>(backend);
  ModelConfig& config = model->mutable_config();
  WEIR_RETURN_IF_ERROR(FillConfig(file, kArch, m, &config));
  WEIR_ASSIGN_OR_RETURN(config.attention.rope, ReadRopeConfig(file, arch, m, loader));
  const bool normed = loader.Has("blk.0.ssm_norm.weight");  // in some sizes
  const auto layer = [&](WeightLoader& from, int32_t /*l*/, const std::string& blk) -> Result<HybridDecoder::Parts> {
    HybridDecoder::Parts parts;
    WEIR_ASSIGN_OR_RETURN(auto attention,
                          AttentionMixer::Load(from, blk, m.n_embd, config.attention, m.norm_eps, {}, backend));
    parts.mixers.push_back({std::move(attention), "attn_output.weight"});
    WEIR_ASSIGN_OR_RETURN(auto scan, Mamba2Mixer::Load(from, blk, m.n_embd, mamba, m.norm_eps, normed, backend));
    parts.mixers.push_back({std::move(scan), "ssm_out.weight"});
    parts.ffn_norm = "ffn_norm";  // without ".weight", as llama.cpp's files have it
    WEIR_ASSIGN_OR_RETURN(parts.feed_forward, LoadGatedFeedForward(from, blk, m.n_embd, m.n_ff, backend));
    return parts;
  };
  WEIR_RETURN_IF_ERROR(model->Load(file, m, {.arch = kArch, .layer = layer}, loader));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace

extern const ArchitectureInfo kFalconH1;
const ArchitectureInfo kFalconH1 = {.name = kArch, .models = "Falcon-H1", .load = Load};

}  // namespace weir
