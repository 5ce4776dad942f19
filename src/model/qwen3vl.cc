// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Qwen3-VL's language model (2511.21631, section 2): Qwen3 with positions on three axes, whose pairs alternate, and
// rows of pictures of which the first layers add a part each. Text has the same position on all axes; for pictures see
// kv/axes.h.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kQwen3vl;
const ArchitectureInfo kQwen3vl = {
    .name = "qwen3vl",
    .models = "Qwen3-VL, dense (language model; the encoder is an mmproj file)",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.head_norms = true;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "qwen3vl", options, ledger));
      WEIR_RETURN_IF_ERROR(model->ReadDeepstack(file, "qwen3vl"));
      WEIR_RETURN_IF_ERROR(ReadAxes(file, "qwen3vl", true, backend, &model->mutable_config()));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
