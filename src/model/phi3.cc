// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Phi-3 and Phi-3.5 (arXiv 2404.14219), Phi-4-mini: the pre-norm decoder with q, k and v in one tensor, gate and up in
// another. The long variants store rotary frequency factors for contexts within and beyond the trained one; the size of
// the pot selects between them (ops/rope.h). A file that names a sliding window has it on every layer.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kPhi3;
const ArchitectureInfo kPhi3 = {
    .name = "phi3",
    .models = "Phi-3, Phi-3.5, Phi-4-mini",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.fused_qkv = options.fused_gate = true;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "phi3", options, ledger));
      WEIR_RETURN_IF_ERROR(ReadWindows(file, "phi3", 0, 0, &model->mutable_config().attention));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
