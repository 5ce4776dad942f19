// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Granite, dense: as `llama`, with factors on embeddings, attention scores, what a block adds to the stream, and
// logits. Files of Granite 4 may say that nothing is rotated.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kGranite;
const ArchitectureInfo kGranite = {
    .name = "granite",
    .models = "Granite 3, Granite 4 (dense)",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.interleaved_rope = true;
      WEIR_ASSIGN_OR_RETURN(options.embedding_scale, ReadFactor(file, "granite.embedding_scale"));
      WEIR_ASSIGN_OR_RETURN(options.residual_scale, ReadFactor(file, "granite.residual_scale"));
      WEIR_ASSIGN_OR_RETURN(const float divisor, ReadFactor(file, "granite.logit_scale"));
      options.logit_scale = 1 / divisor;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "granite", options, ledger));
      AttentionLayout& attention = model->mutable_config().attention;
      WEIR_ASSIGN_OR_RETURN(attention.scale, ReadScale(file, "granite.attention.scale", attention.head_dim));
      WEIR_ASSIGN_OR_RETURN(const bool rotates, file.BoolOr("granite.rope.scaling.finetuned", true));
      if (!rotates) attention.plain_layers.assign(static_cast<size_t>(attention.n_layers), true);
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
