// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Seed-OSS: the pre-norm decoder with biases on q, k and v. Its second norm is named as if it came after attention.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kSeedOss;
const ArchitectureInfo kSeedOss = {
    .name = "seed_oss",
    .models = "Seed-OSS",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.ffn_norm = "post_attention_norm";
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "seed_oss", options, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
