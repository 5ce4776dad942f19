// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// gpt-oss (arXiv 2508.10925, section 2): experts with biases and a limited gate, a sink in every head's softmax, and a
// sliding window on the first of every two layers. YaRN's range is not widened to whole pairs: the published
// configuration says so (truncate), and files have no key for it.
#include "model/pre_norm_decoder.h"

namespace weir {

extern const ArchitectureInfo kGptOss;
const ArchitectureInfo kGptOss = {
    .name = "gpt-oss",
    .models = "gpt-oss (20B, 120B)",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<PreNormDecoder>(backend);
      PreNormDecoder::Options options;
      options.ffn_norm = "post_attention_norm";
      options.experts = options.sinks = true;
      options.of_experts = {.router_bias = true, .biases = true, .act = ExpertsConfig::Act::kClampedSwiGlu};
      WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "gpt-oss", options, ledger));
      AttentionLayout& attention = model->mutable_config().attention;
      attention.rope.yarn_whole_pairs = false;
      WEIR_RETURN_IF_ERROR(ReadWindows(file, "gpt-oss", 0, 2, &attention));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
