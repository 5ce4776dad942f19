// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Qwen2-VL's language model: Qwen2 with positions on three axes (2409.12191, section 2.1). Text has the same position
// on all of them; for pictures see kv/axes.h.
#include "model/pre_norm_decoder.h"

namespace weir {
namespace {

// Pairs of each axis; files have a fourth number, which no model uses.
Status ReadSections(const GgufFile& file, AttentionLayout* layout) {
  const std::string key = "qwen2vl.rope.dimension_sections";
  if (!file.Has(key)) return NotFound("{}: key '{}' is missing", file.path(), key);
  const std::vector<int64_t>* sections = file.IntArray(key);
  const int64_t n_pairs = layout->rope.n_rot / 2;
  int64_t n_left = n_pairs;
  bool sane = sections != nullptr && sections->size() >= kAxes && sections->size() <= kAxes + 1;
  for (size_t i = 0; sane && i < sections->size(); ++i) {
    const int64_t n = (*sections)[i];
    sane = n >= 0 && n <= n_left && (i < kAxes || n == 0);
    n_left -= n;
    if (sane && i < kAxes) layout->axis_pairs[i] = static_cast<int32_t>(n);
  }
  if (sane && n_left == 0) return Status();
  return Corrupt("{}: {} must be three numbers that are {} together", file.path(), key, n_pairs);
}

}  // namespace

extern const ArchitectureInfo kQwen2vl;
const ArchitectureInfo kQwen2vl = {
    .name = "qwen2vl",
    .models = "Qwen2-VL (language model; the encoder is an mmproj file)",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "qwen2vl", PreNormDecoder::Options(), ledger));
      ModelConfig& config = model->mutable_config();
      WEIR_RETURN_IF_ERROR(ReadSections(file, &config.attention));
      if (!backend.on_host()) {
        // Axes are computed on the host alone. Those of text are one.
        config.attention.axis_pairs = {};
        config.no_pictures = "pictures' positions on three axes are not computed on " + backend.name();
      }
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
