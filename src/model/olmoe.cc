// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// OLMoE (arXiv 2409.02060, section 2): a decoder with norms over all heads of q and of k at once, and in every layer
// experts whose weights are a softmax over all of them. A file may bound q, k and v.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kOlmoe;
const ArchitectureInfo kOlmoe = {
    .name = "olmoe",
    .models = "OLMoE",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.wide_norms = options.experts = true;
      options.of_experts.normalise = false;
      WEIR_ASSIGN_OR_RETURN(options.clamp, ReadFactorOr0(file, "olmoe.attention.clamp_kqv"));
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "olmoe", options, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
