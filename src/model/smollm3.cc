// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// SmolLM3: as `llama`, and every fourth layer rotates nothing (arXiv 2501.18795 studies
// such mixtures).
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kSmollm3;
const ArchitectureInfo kSmollm3 = {
    .name = "smollm3",
    .models = "SmolLM3",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.interleaved_rope = true;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "smollm3", options, ledger));
      AttentionLayout& attention = model->mutable_config().attention;
      // Files have no key for it.
      constexpr int32_t kEvery = 4;
      for (int32_t l = 1; l <= attention.n_layers; ++l) attention.plain_layers.push_back(l % kEvery == 0);
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
