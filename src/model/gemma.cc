// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Gemma, the first (arXiv 2403.08295): gelu gates, embeddings scaled by sqrt(n_embd).
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kGemma;
const ArchitectureInfo kGemma = {
    .name = "gemma",
    .models = "Gemma 1, CodeGemma",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.scaled_embedding = true;
      options.gate = PreNormDecoder::Gate::kGeluTanh;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "gemma", options, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
