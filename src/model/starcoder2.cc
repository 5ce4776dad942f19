// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// StarCoder2 (arXiv 2402.19173): layer norms, biases everywhere, no gate. A file that names a sliding window
// has it on every layer.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kStarcoder2;
const ArchitectureInfo kStarcoder2 = {
    .name = "starcoder2",
    .models = "StarCoder2",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.layer_norms = true;
      options.gate = PreNormDecoder::Gate::kNoneGeluTanh;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "starcoder2", options, ledger));
      WEIR_RETURN_IF_ERROR(ReadWindows(file, "starcoder2", 0, 0, &model->mutable_config().attention));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
