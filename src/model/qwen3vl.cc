// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Qwen3-VL's language model: Qwen3 with positions on three axes, whose pairs alternate. Text has the same position on
// all of them, so that they rotate like plain ones.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kQwen3vl;
const ArchitectureInfo kQwen3vl = {
    .name = "qwen3vl",
    .models = "Qwen3-VL, dense (language model)",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.head_norms = true;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "qwen3vl", options, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
