// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Gemma 4, language model (model/gemma_decoder.h). Window layers and the others differ in head size, in KV heads and in
// the rotary embedding; of the latter's heads only the first part is rotated (the file's frequency factors stop the
// rest), and a layer without a value projection normalises its key projection. A layer's output has a factor. Files of
// mixtures of experts are refused.
//
// In the large sizes, which have no per-layer embeddings, a picture's rows see each other in the layers with a window;
// rows of one forward pass do, as in Gemma 3. llama.cpp's files do not say it.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "model/gemma_decoder.h"

namespace weir {
namespace {

constexpr const char* kArch = "gemma4";

Status SetLayout(const GgufFile& file, const DecoderMetadata& m, WeightLoader& loader, GemmaDecoder* model) {
  WEIR_ASSIGN_OR_RETURN(const auto windows, model->ReadAttention(file, kArch, m, loader, 0));
  AttentionLayout& a = model->mutable_config().attention;
  WEIR_ASSIGN_OR_RETURN(const auto kv_heads,
                        ReadPerLayer(file, "gemma4.attention.head_count_kv", m.n_layers, 1, m.n_heads));
  const bool any = std::ranges::find(windows, 1) != windows.end();
  if (std::ranges::find(windows, 0) != windows.end() && !loader.Has("rope_freqs.weight")) {
    return NotFound("{}: tensor rope_freqs.weight is missing: it says which part of a head is rotated", file.path());
  }
  int32_t window_dim = m.head_dim;
  if (any) {
    const auto size = [&](const char* key, int64_t least, int64_t most) {
      return BoundedInt(file, std::string(kArch) + key, least, most);
    };
    WEIR_ASSIGN_OR_RETURN(const int64_t key_dim, size(".attention.key_length_swa", 8, kMaxHeadDim));
    WEIR_ASSIGN_OR_RETURN(const int64_t value_dim, size(".attention.value_length_swa", 8, kMaxHeadDim));
    if (key_dim != value_dim || key_dim % 8 != 0) {
      return Unsupported("{}: window layers with keys of {} and values of {}; both must be equal and a multiple of 8",
                         file.path(), key_dim, value_dim);
    }
    window_dim = static_cast<int32_t>(key_dim);
    WEIR_ASSIGN_OR_RETURN(const int64_t window, size(".attention.sliding_window", 1, 1 << 30));
    a.window = static_cast<int32_t>(window);
    a.window_layers.assign(windows.begin(), windows.end());
    RopeConfig rope;
    WEIR_ASSIGN_OR_RETURN(const int64_t n_rot, size(".rope.dimension_count_swa", 0, key_dim));
    if (n_rot % 2 != 0) return Corrupt("{}: gemma4.rope.dimension_count_swa is odd", file.path());
    rope.n_rot = static_cast<int>(n_rot);
    rope.freq_base = a.rope.freq_base;
    if (file.Has("gemma4.rope.freq_base_swa")) {
      WEIR_ASSIGN_OR_RETURN(rope.freq_base, ReadFreqBase(file, "gemma4.rope.freq_base_swa"));
    }
    a.window_rope = rope;
  }

  std::vector<LayerHeads> layers;
  for (int32_t l = 0; l < m.n_layers; ++l) {
    layers.push_back({m.n_heads, kv_heads[l], windows[l] == 1 ? window_dim : m.head_dim});
  }
  WEIR_ASSIGN_OR_RETURN(const int64_t n_own,
                        BoundedIntOr(file, "gemma4.embedding_length_per_layer_input", 0, 1 << 16, 0));
  WEIR_ASSIGN_OR_RETURN(a.two_way_pictures, file.BoolOr("weir.two_way_pictures", n_own == 0));
  a.two_way_pictures = a.two_way_pictures && any;
  a.two_way_windows_only = true;
  a.picture_rows = 280;
  return model->SetLayers(file, kArch, std::move(layers));
}

Result<std::unique_ptr<Model>> Load(const GgufFile& file, Backend& backend, Ledger& ledger) {
  WEIR_ASSIGN_OR_RETURN(const DecoderMetadata m, ReadDecoderMetadata(file, kArch, {.layers_differ = true}));
  auto model = std::make_unique<GemmaDecoder>(backend);
  WeightLoader loader(file, backend, ledger);
  WEIR_RETURN_IF_ERROR(SetLayout(file, m, loader, model.get()));
  WEIR_RETURN_IF_ERROR(
      model->Load(file, m, {.arch = kArch, .keys_are_values = true, .gate_cutoffs = {}}, loader, ledger));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace

extern const ArchitectureInfo kGemma4;
const ArchitectureInfo kGemma4 = {.name = kArch, .models = "Gemma 4 (text; without experts)", .load = Load};

}  // namespace weir
