// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// OLMo 2 (arXiv 2501.00656) and Olmo 3: the two halves of a block read the stream itself and their outputs are
// normalised; norms on q and k, each over all heads at once. A file of Olmo 3 names a sliding window on three of four
// layers, whose rotary embedding is never scaled.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kOlmo2;
const ArchitectureInfo kOlmo2 = {
    .name = "olmo2",
    .models = "OLMo 2, Olmo 3",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.pre_norms = false;
      options.post_norms = options.wide_norms = true;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "olmo2", options, ledger));
      AttentionLayout& attention = model->mutable_config().attention;
      WEIR_RETURN_IF_ERROR(ReadWindows(file, "olmo2", 0, 4, &attention));
      constexpr char kOwnBase[] = "olmo2.rope.freq_base_swa";
      const bool scaled = attention.rope.scaling != RopeConfig::Scaling::kNone || !attention.rope.freq_factors.empty();
      if (attention.has_windows() && (scaled || file.Has(kOwnBase))) {
        RopeConfig rope;
        rope.n_rot = attention.rope.n_rot;
        rope.freq_base = attention.rope.freq_base;
        if (file.Has(kOwnBase)) {
          WEIR_ASSIGN_OR_RETURN(rope.freq_base, ReadFreqBase(file, kOwnBase));
        }
        attention.window_rope = rope;
      }
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
