// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// ERNIE 4.5 with experts: as `ernie4_5`, with experts and shared ones behind the first layers, chosen by a softmax
// with a bias.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kErnie45Moe;
const ArchitectureInfo kErnie45Moe = {
    .name = "ernie4_5-moe",
    .models = "ERNIE 4.5 with experts (21B-A3B, 300B-A47B)",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      WEIR_ASSIGN_OR_RETURN(const int64_t step,
                            BoundedIntOr(file, "ernie4_5-moe.interleave_moe_layer_step", 1, 1024, 1));
      if (step != 1) {
        return Unsupported("{}: experts in one of {} layers (ernie4_5-moe.interleave_moe_layer_step) are not supported",
                           file.path(), step);
      }
      options.interleaved_rope = options.experts = options.of_experts.shared = true;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "ernie4_5-moe", options, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
