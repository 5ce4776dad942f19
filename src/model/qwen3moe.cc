// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Qwen3 with experts (arXiv 2505.09388, section 2): Qwen3's decoder, and in every layer experts whose weights sum to
// one, without a shared one.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kQwen3moe;
const ArchitectureInfo kQwen3moe = {
    .name = "qwen3moe",
    .models = "Qwen3 with experts (30B-A3B, 235B-A22B, Coder)",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.head_norms = options.experts = true;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "qwen3moe", options, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
