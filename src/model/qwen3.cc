// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Qwen3: the pre-norm decoder with an RMS norm on every head of q and k (arXiv 2505.09388, section 2), no biases, and
// heads whose size the file gives apart from the width.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kQwen3;
const ArchitectureInfo kQwen3 = {
    .name = "qwen3",
    .models = "Qwen3 (dense)",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.head_norms = true;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "qwen3", options, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
