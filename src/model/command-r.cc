// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Command R and Aya: attention and feed-forward side by side on one layer norm without biases, interleaved rotary
// pairs, a factor on the logits, head and embedding in one.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kCommandR;
const ArchitectureInfo kCommandR = {
    .name = "command-r",
    .models = "Command R, Aya 23, Aya Expanse",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.interleaved_rope = options.layer_norms = options.parallel = true;
      options.norm_biases = false;
      WEIR_ASSIGN_OR_RETURN(options.logit_scale, ReadFactor(file, "command-r.logit_scale"));
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "command-r", options, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
