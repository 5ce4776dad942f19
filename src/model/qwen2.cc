// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen2.5: the pre-norm decoder with biases on q, k and v; rotary pairs are half-split in the file.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kQwen2;
const ArchitectureInfo kQwen2 = {
    .name = "qwen2",
    .models = "Qwen2, Qwen2.5",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "qwen2", PreNormDecoder::Options(), ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
