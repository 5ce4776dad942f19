// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Falcon, the first (arXiv 2311.16867, section 4): attention and feed-forward side by side on one layer norm, few KV
// heads, no biases but those of the norms, no gate. The sizes with a norm for each half (40B, 180B) are refused.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kFalcon;
const ArchitectureInfo kFalcon = {
    .name = "falcon",
    .models = "Falcon 7B, Falcon2 11B",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.layer_norms = options.parallel = options.fused_qkv = true;
      options.gate = PreNormDecoder::Gate::kNoneGelu;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "falcon", options, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
