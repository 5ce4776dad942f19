// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Nemotron-4 and Minitron (arXiv 2402.16819, section 2): layer norms (files hold their weights plus one), half of
// every head rotated, and the square of relu in place of a gated feed-forward part.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kNemotron;
const ArchitectureInfo kNemotron = {
    .name = "nemotron",
    .models = "Minitron, Nemotron-4",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.layer_norms = true;
      options.gate = PreNormDecoder::Gate::kNoneSquaredRelu;
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "nemotron", options, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
