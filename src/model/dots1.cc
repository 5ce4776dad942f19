// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// dots.llm1 (arXiv 2506.05767): norms on every head of q and k; experts, two of them shared, behind the first layers,
// chosen by a sigmoid with a bias.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kDots1;
const ArchitectureInfo kDots1 = {
    .name = "dots1",
    .models = "dots.llm1",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.head_norms = options.experts = options.of_experts.shared = true;
      options.of_experts.gate = RouteGate::kSigmoid;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "dots1", options, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
