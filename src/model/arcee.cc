// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Arcee Foundation Models: as `llama`, with the square of relu in place of a gated feed-forward part.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kArcee;
const ArchitectureInfo kArcee = {
    .name = "arcee",
    .models = "AFM-4.5B",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.interleaved_rope = true;
      options.gate = PreNormDecoder::Gate::kNoneSquaredRelu;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "arcee", options, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
