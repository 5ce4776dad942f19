// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Qwen3-Next: model/qwen_hybrid.h.
#include "model/qwen_hybrid.h"

namespace weir {

extern const ArchitectureInfo kQwen3next;
const ArchitectureInfo kQwen3next = {
    .name = "qwen3next",
    .models = "Qwen3-Next",
    .load =
        [](const GgufFile& file, Backend& backend, Ledger& ledger) {
          return LoadQwenHybrid(file, backend, ledger, "qwen3next", {.experts = true, .next = true});
        },
};

}  // namespace weir
