// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Phi-1.5 and Phi-2 (arXiv 2309.05463): attention and feed-forward side by side on one layer norm, biases everywhere,
// the head included, no gate, rotary positions on the first part of every head.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kPhi2;
const ArchitectureInfo kPhi2 = {
    .name = "phi2",
    .models = "Phi-1.5, Phi-2",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.layer_norms = options.parallel = true;
      options.gate = PreNormDecoder::Gate::kNoneGeluTanh;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "phi2", options, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
