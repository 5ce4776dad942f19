// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// ERNIE 4.5, dense: as `llama`.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kErnie45;
const ArchitectureInfo kErnie45 = {
    .name = "ernie4_5",
    .models = "ERNIE 4.5 (dense)",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.interleaved_rope = true;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "ernie4_5", options, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
