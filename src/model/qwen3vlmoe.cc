// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Qwen3-VL with experts, language model: as `qwen3vl`, with `qwen3moe`'s experts in every layer.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kQwen3vlmoe;
const ArchitectureInfo kQwen3vlmoe = {
    .name = "qwen3vlmoe",
    .models = "Qwen3-VL with experts (30B-A3B, 235B-A22B; language model; the encoder is an mmproj file)",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.head_norms = options.experts = true;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "qwen3vlmoe", options, ledger));
      WEIR_RETURN_IF_ERROR(model->ReadDeepstack(file, "qwen3vlmoe"));
      WEIR_RETURN_IF_ERROR(ReadAxes(file, "qwen3vlmoe", true, backend, &model->mutable_config()));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
