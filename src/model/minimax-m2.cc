// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// MiniMax-M2: norms over all heads of q and of k at once, half of every head rotated; in every layer experts, chosen
// by a sigmoid with a bias.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kMinimaxM2;
const ArchitectureInfo kMinimaxM2 = {
    .name = "minimax-m2",
    .models = "MiniMax-M2, M2.1",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.wide_norms = options.experts = true;
      options.of_experts.gate = RouteGate::kSigmoid;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "minimax-m2", options, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
