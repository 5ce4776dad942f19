// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Nemotron-H and Nemotron Nano 2 (arXiv 2504.03624): every layer is one of Mamba-2, attention without rotary positions,
// or a feed-forward layer with the square of relu.
#include "model/attention_mixer.h"
#include "model/hybrid_decoder.h"
#include "model/mamba2_mixer.h"

namespace weir {
namespace {

constexpr char kArch[] = "nemotron_h";

Result<std::unique_ptr<Model>> Load(const GgufFile& file, Backend& backend, Ledger& ledger) {
  const std::string arch = kArch;
  WEIR_ASSIGN_OR_RETURN(const DecoderMetadata m, ReadDecoderMetadata(file, arch));
  if (m.attends.empty() || m.feeds_forward.empty()) {
    return Corrupt("{}: {}.attention.head_count_kv and {}.feed_forward_length must have an entry for each layer",
                   file.path(), arch, arch);
  }
  WEIR_ASSIGN_OR_RETURN(const Mamba2Shape mamba, ReadMamba2Shape(file, arch));
  WeightLoader loader(file, backend, ledger);
  auto model = std::make_unique<HybridDecoder>(backend);
  ModelConfig& config = model->mutable_config();
  WEIR_RETURN_IF_ERROR(FillConfig(file, kArch, m, &config));  // rope.n_rot stays 0
  const auto layer = [&](WeightLoader& from, int32_t l, const std::string& blk) -> Result<HybridDecoder::Parts> {
    HybridDecoder::Parts parts;
    if (m.attends[static_cast<size_t>(l)]) {
      WEIR_ASSIGN_OR_RETURN(auto mixer,
                            AttentionMixer::Load(from, blk, m.n_embd, config.attention, m.norm_eps, {}, backend));
      parts.mixers.push_back({std::move(mixer), "attn_output.weight"});
    } else if (m.feeds_forward[static_cast<size_t>(l)]) {
      parts.ffn_norm = "attn_norm.weight";
      WEIR_ASSIGN_OR_RETURN(parts.feed_forward, LoadSquaredReluFeedForward(from, blk, m.n_embd, m.n_ff, backend));
    } else {
      WEIR_ASSIGN_OR_RETURN(auto mixer, Mamba2Mixer::Load(from, blk, m.n_embd, mamba, m.norm_eps, true, backend));
      parts.mixers.push_back({std::move(mixer), "ssm_out.weight"});
    }
    return parts;
  };
  WEIR_RETURN_IF_ERROR(model->Load(file, m, {.arch = kArch, .layer = layer}, loader));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace

extern const ArchitectureInfo kNemotronH;
const ArchitectureInfo kNemotronH = {.name = kArch, .models = "Nemotron-H, Nemotron Nano 2", .load = Load};

}  // namespace weir
