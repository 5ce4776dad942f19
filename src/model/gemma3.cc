// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Gemma 3, language model (arXiv 2503.19786, section 2): as Gemma 2 with norms on q and k in place of the soft caps,
// and five layers with a sliding window to one without. The two kinds have rotary embeddings of their own: window
// layers a base of 10,000 and no scaling, the others the file's base and scaling.
//
// A picture's rows see each other (section 2.1). Rows of one forward pass do: a picture that is read in more than one
// chunk is cut into blocks, each of which sees itself and what came before it.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kGemma3;
const ArchitectureInfo kGemma3 = {
    .name = "gemma3",
    .models = "Gemma 3 (text)",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.post_norms = options.head_norms = options.scaled_embedding = true;
      options.gate = PreNormDecoder::Gate::kGeluTanh;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "gemma3", options, ledger));
      ModelConfig& config = model->mutable_config();
      AttentionLayout& attention = config.attention;
      WEIR_RETURN_IF_ERROR(ReadWindows(file, "gemma3", 0, 6, &attention));
      if (attention.has_windows()) {
        RopeConfig rope;
        rope.n_rot = attention.rope.n_rot;
        WEIR_ASSIGN_OR_RETURN(rope.freq_base, ReadFreqBase(file, "gemma3.rope.freq_base_swa"));
        attention.window_rope = rope;
      }
      WEIR_ASSIGN_OR_RETURN(config.logit_softcap, ReadSoftCap(file, "gemma3.final_logit_softcapping", 0));
      // The 27B model scales scores by its width over its heads; files indicate it only by their number of layers.
      const int32_t scaled_by = config.n_layers == 62 ? config.n_embd / attention.n_heads : attention.head_dim;
      WEIR_ASSIGN_OR_RETURN(attention.scale, ReadScale(file, "gemma3.attention.scale", scaled_by));
      attention.two_way_pictures = true;
      attention.picture_rows = 256;
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
