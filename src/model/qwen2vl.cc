// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Qwen2-VL's language model: Qwen2 with positions on three axes (2409.12191, section 2.1). Text has the same position
// on all of them; for pictures see kv/axes.h.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kQwen2vl;
const ArchitectureInfo kQwen2vl = {
    .name = "qwen2vl",
    .models = "Qwen2-VL (language model; the encoder is an mmproj file)",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "qwen2vl", PreNormDecoder::Options(), ledger));
      ModelConfig& config = model->mutable_config();
      WEIR_RETURN_IF_ERROR(ReadAxes(file, "qwen2vl", false, backend, &config));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
