// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Gemma 2 (arXiv 2408.00118, section 2): the pre-norm decoder with a second norm after attention and feed-forward
// layer, gelu gates, embeddings scaled by sqrt(n_embd), soft-capped attention scores and logits, and a sliding window
// on every other layer, the first one included.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kGemma2;
const ArchitectureInfo kGemma2 = {
    .name = "gemma2",
    .models = "Gemma 2",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.post_norms = options.scaled_embedding = true;
      options.gate = PreNormDecoder::Gate::kGeluTanh;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "gemma2", options, ledger));
      ModelConfig& config = model->mutable_config();
      AttentionLayout& attention = config.attention;
      WEIR_RETURN_IF_ERROR(ReadWindows(file, "gemma2", 4096, 2, &attention));
      WEIR_ASSIGN_OR_RETURN(attention.softcap, ReadSoftCap(file, "gemma2.attn_logit_softcapping", 50));
      WEIR_ASSIGN_OR_RETURN(config.logit_softcap, ReadSoftCap(file, "gemma2.final_logit_softcapping", 30));
      // The 27B model scales scores by its width over its heads; files indicate it only by their number of layers.
      const int32_t scaled_by = config.n_layers == 46 ? config.n_embd / attention.n_heads : attention.head_dim;
      WEIR_ASSIGN_OR_RETURN(attention.scale, ReadScale(file, "gemma2.attention.scale", scaled_by));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
