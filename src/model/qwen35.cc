// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Qwen3.5 (dense): model/qwen_hybrid.h.
#include "model/qwen_hybrid.h"

namespace weir {

extern const ArchitectureInfo kQwen35;
const ArchitectureInfo kQwen35 = {
    .name = "qwen35",
    .models = "Qwen3.5 (dense)",
    .load = [](const GgufFile& file, Backend& backend,
               Ledger& ledger) { return LoadQwenHybrid(file, backend, ledger, "qwen35", {.experts = false}); },
};

}  // namespace weir
