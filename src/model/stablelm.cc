// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// StableLM (arXiv 2402.17834): the pre-norm decoder with layer norms and rotary positions on the first part of
// every head. Those with norms on heads (12B) are not supported.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kStablelm;
const ArchitectureInfo kStablelm = {
    .name = "stablelm",
    .models = "StableLM 2, StableLM Zephyr",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.layer_norms = true;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "stablelm", options, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
