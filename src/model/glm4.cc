// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// GLM-4-0414: norms before and after both halves of a block, gate and up in one tensor, biases on q, k and v, and
// rotary pairs that are interleaved in the file, on the first half of every head.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kGlm4;
const ArchitectureInfo kGlm4 = {
    .name = "glm4",
    .models = "GLM-4-0414, GLM-Z1",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.interleaved_rope = options.post_norms = options.fused_gate = true;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "glm4", options, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
