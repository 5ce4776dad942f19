// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// EXAONE 4.0 (arXiv 2507.11407): the two halves of a block read the stream itself and their outputs are
// normalised; norms on every head of q and k. The 32B model has a sliding window on three of four layers, and rotates
// in those alone; the small one rotates everywhere.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kExaone4;
const ArchitectureInfo kExaone4 = {
    .name = "exaone4",
    .models = "EXAONE 4.0",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.pre_norms = false;
      options.post_norms = options.head_norms = true;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "exaone4", options, ledger));
      AttentionLayout& attention = model->mutable_config().attention;
      WEIR_RETURN_IF_ERROR(ReadWindows(file, "exaone4", 0, 4, &attention));
      for (int32_t l = 0; attention.has_windows() && l < attention.n_layers; ++l) {
        attention.plain_layers.push_back(!attention.is_window(l));
      }
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
