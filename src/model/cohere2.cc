// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Command R7B and Command A (arXiv 2504.00698): as Command R, with a sliding window on three of four layers,
// which alone rotate.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kCohere2;
const ArchitectureInfo kCohere2 = {
    .name = "cohere2",
    .models = "Command R7B, Command A",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.interleaved_rope = options.layer_norms = options.parallel = true;
      options.norm_biases = false;
      WEIR_ASSIGN_OR_RETURN(options.logit_scale, ReadFactor(file, "cohere2.logit_scale"));
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "cohere2", options, ledger));
      AttentionLayout& attention = model->mutable_config().attention;
      WEIR_RETURN_IF_ERROR(ReadWindows(file, "cohere2", 0, 4, &attention));
      for (int32_t l = 0; attention.has_windows() && l < attention.n_layers; ++l) {
        attention.plain_layers.push_back(!attention.is_window(l));
      }
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
