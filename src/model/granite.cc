// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
#include "model/granite.h"

#include <string>

#include "model/pre_norm_decoder.h"

namespace weir {

Result<std::unique_ptr<Model>> LoadGranite(const GgufFile& file, const char* arch, Backend& backend, Ledger& ledger) {
  const std::string prefix = std::string(arch) + ".";
  auto model = std::make_unique<PreNormDecoder>(backend);
  PreNormDecoder::Options options;
  options.interleaved_rope = options.experts = options.of_experts.shared = true;
  WEIR_ASSIGN_OR_RETURN(options.embedding_scale, ReadFactor(file, prefix + "embedding_scale"));
  WEIR_ASSIGN_OR_RETURN(options.residual_scale, ReadFactor(file, prefix + "residual_scale"));
  WEIR_ASSIGN_OR_RETURN(const float divisor, ReadFactor(file, prefix + "logit_scale"));
  options.logit_scale = 1 / divisor;
  WEIR_RETURN_IF_ERROR(model->LoadStandard(file, arch, options, ledger));
  AttentionLayout& attention = model->mutable_config().attention;
  WEIR_ASSIGN_OR_RETURN(attention.scale, ReadScale(file, prefix + "attention.scale", attention.head_dim));
  WEIR_ASSIGN_OR_RETURN(const bool rotates, file.BoolOr(prefix + "rope.scaling.finetuned", true));
  if (!rotates) attention.plain_layers.assign(static_cast<size_t>(attention.n_layers), true);
  return std::unique_ptr<Model>(std::move(model));
}

extern const ArchitectureInfo kGranite;
const ArchitectureInfo kGranite = {
    .name = "granite",
    .models = "Granite 3, Granite 4 (dense)",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      return LoadGranite(file, "granite", backend, ledger);
    },
};

}  // namespace weir
