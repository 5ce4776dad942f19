// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Qwen, the first ("Qwen Technical Report", 2309.16609, section 2.3), and the language model of Qwen-VL (2308.12966):
// the pre-norm decoder with q, k and v and their biases in one tensor. Its published code stretches the rotary base and
// scales queries by the logarithm of their position beyond the trained context; GGUF has no key for either, and neither
// has an effect within that context. Like llama.cpp, Weir does neither.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kQwen;
const ArchitectureInfo kQwen = {
    .name = "qwen",
    .models = "Qwen (the first), Qwen-VL's language model",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.fused_qkv = options.fused_bias = options.halved_ff = true;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "qwen", options, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
