// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// LFM2 with experts: as `lfm2`, with experts behind the first layers, chosen by a sigmoid with a bias.
#include "model/lfm2.h"

namespace weir {

extern const ArchitectureInfo kLfm2moe;
const ArchitectureInfo kLfm2moe = {
    .name = "lfm2moe",
    .models = "LFM2 with experts (8B-A1B, 24B-A2B)",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      return LoadLfm2(file, "lfm2moe", {.gate = RouteGate::kSigmoid}, backend, ledger);
    },
};

}  // namespace weir
