// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Ministral 3 and other newer files of Mistral's (language model): as `llama`; where the file says so, queries grow
// with the logarithm of their position, in steps of the trained context. A position is what the rotary embedding sees:
// where a pot numbers its entries anew, queries grow only in one that is larger than the trained context
// (docs/decisions/0025-temperature-counts-positions.md).
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kMistral3;
const ArchitectureInfo kMistral3 = {
    .name = "mistral3",
    .models = "Ministral 3, Devstral Small 2, Mistral Small 3 (newer files)",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.interleaved_rope = true;
      WEIR_ASSIGN_OR_RETURN(options.temperature, ReadFactorOr0(file, "mistral3.attention.temperature_scale"));
      if (options.temperature > 0) {
        // The length is YaRN's.
        constexpr char kLength[] = "mistral3.rope.scaling.original_context_length";
        WEIR_ASSIGN_OR_RETURN(options.temperature_length, ReadFactor(file, kLength));
      }
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "mistral3", options, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
