// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Llama 1 to 3.2, Vicuna, LongChat, Mistral, SmolLM2 and others with the same tensor names. Rotary pairs are
// interleaved in the file; rows of q and k are reordered to half-split pairs while loading. A file that names a sliding
// window (Mistral 7B, arXiv 2310.06825, section 2) has it on every layer. A file that names experts (Mixtral, arXiv
// 2401.04088, section 2) has them on every layer.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kLlama;
const ArchitectureInfo kLlama = {
    .name = "llama",
    .models = "Llama 1-3.2, Vicuna, LongChat, Mistral, SmolLM2, Mixtral",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.interleaved_rope = options.experts = true;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "llama", options, ledger));
      WEIR_RETURN_IF_ERROR(ReadWindows(file, "llama", 0, 0, &model->mutable_config().attention));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
