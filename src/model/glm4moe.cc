// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// GLM-4.5 and later (arXiv 2508.06471, section 2.1): a decoder with biases on q, k and v, norms on the heads of q and
// k in the largest models, half of every head rotated; experts, one of them shared, behind the first layers, chosen by
// a sigmoid with a bias.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kGlm4moe;
const ArchitectureInfo kGlm4moe = {
    .name = "glm4moe",
    .models = "GLM-4.5, GLM-4.6, GLM-4.7 (language model)",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.ffn_norm = "post_attention_norm";
      options.head_norms =
          file.Tensor("blk.0.attn_q_norm.weight") != nullptr || file.Tensor("blk.0.attn_k_norm.weight") != nullptr;
      options.experts = options.of_experts.shared = true;
      options.of_experts.gate = RouteGate::kSigmoid;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "glm4moe", options, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
