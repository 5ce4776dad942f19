// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Gemma 3n, language model (model/gemma_decoder.h). Window layers and the others differ in the base of the rotary
// embedding alone.
#include <algorithm>
#include <cmath>
#include <vector>

#include "model/gemma_decoder.h"

namespace weir {
namespace {

constexpr const char* kArch = "gemma3n";

Status SetLayout(const GgufFile& file, const DecoderMetadata& m, WeightLoader& loader, GemmaDecoder* model) {
  WEIR_ASSIGN_OR_RETURN(const auto windows, model->ReadAttention(file, kArch, m, loader, 30));
  AttentionLayout& a = model->mutable_config().attention;
  if (std::ranges::find(windows, 1) != windows.end()) {
    WEIR_ASSIGN_OR_RETURN(const int64_t window, BoundedInt(file, "gemma3n.attention.sliding_window", 1, 1 << 30));
    a.window = static_cast<int32_t>(window);
    a.window_layers.assign(windows.begin(), windows.end());
    RopeConfig rope;
    rope.n_rot = a.rope.n_rot;
    WEIR_ASSIGN_OR_RETURN(rope.freq_base, ReadFreqBase(file, "gemma3n.rope.freq_base_swa"));
    a.window_rope = rope;
  }
  const LayerHeads heads = {m.n_heads, m.n_kv_heads, m.head_dim};
  return model->SetLayers(file, kArch, std::vector<LayerHeads>(static_cast<size_t>(m.n_layers), heads));
}

// Minus infinity: the layer's gates are not sparse.
Result<std::vector<float>> ReadCutoffs(const GgufFile& file, int32_t n_layers) {
  constexpr const char* kKey = "gemma3n.activation_sparsity_scale";
  const std::vector<double>* list = file.FloatArray(kKey);
  if (list == nullptr) return NotFound("{}: the list {} is missing", file.path(), kKey);
  if (std::ssize(*list) != n_layers) {
    return Corrupt("{}: {} has {} numbers for {} layers", file.path(), kKey, list->size(), n_layers);
  }
  std::vector<float> out;
  for (const double value : *list) {
    if (!(std::isinf(value) && value < 0) && !(std::abs(value) < 10)) {
      return Corrupt("{}: {} has the number {:g}, expected -inf or one between -10 and 10", file.path(), kKey, value);
    }
    out.push_back(static_cast<float>(value));
  }
  return out;
}

Result<std::unique_ptr<Model>> Load(const GgufFile& file, Backend& backend, Ledger& ledger) {
  WEIR_ASSIGN_OR_RETURN(const DecoderMetadata m, ReadDecoderMetadata(file, kArch, {.layers_differ = true}));
  auto model = std::make_unique<GemmaDecoder>(backend);
  WeightLoader loader(file, backend, ledger);
  WEIR_RETURN_IF_ERROR(SetLayout(file, m, loader, model.get()));
  GemmaDecoder::Family family = {.arch = kArch, .streams = true, .gate_cutoffs = {}};
  WEIR_ASSIGN_OR_RETURN(family.gate_cutoffs, ReadCutoffs(file, m.n_layers));
  WEIR_RETURN_IF_ERROR(model->Load(file, m, family, loader, ledger));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace

extern const ArchitectureInfo kGemma3n;
const ArchitectureInfo kGemma3n = {.name = kArch, .models = "Gemma 3n (text)", .load = Load};

}  // namespace weir
