// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Qwen3.5 (mixtures of experts): model/qwen_hybrid.h.
#include "model/qwen_hybrid.h"

namespace weir {

extern const ArchitectureInfo kQwen35moe;
const ArchitectureInfo kQwen35moe = {
    .name = "qwen35moe",
    .models = "Qwen3.5 (mixtures of experts)",
    .load = [](const GgufFile& file, Backend& backend,
               Ledger& ledger) { return LoadQwenHybrid(file, backend, ledger, "qwen35moe", {.experts = true}); },
};

}  // namespace weir
