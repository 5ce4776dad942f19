// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Qwen2 with experts (arXiv 2407.10671, section 2.2.2): Qwen2's decoder, and in every layer experts whose weights are
// a softmax over all of them, beside a shared one with a gate of its own.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kQwen2moe;
const ArchitectureInfo kQwen2moe = {
    .name = "qwen2moe",
    .models = "Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.experts = true;
      options.of_experts = {.shared = true, .shared_gate = true, .normalise = false};
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "qwen2moe", options, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
