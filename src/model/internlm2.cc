// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// InternLM2 (arXiv 2403.17297): as `llama`; q, k and v, which its own folder holds fused by KV head, are apart in
// the file.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kInternlm2;
const ArchitectureInfo kInternlm2 = {
    .name = "internlm2",
    .models = "InternLM2, InternLM2.5",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.interleaved_rope = true;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "internlm2", options, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
