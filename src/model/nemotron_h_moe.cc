// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Nemotron 3 Nano: as `nemotron_h`, with experts in the layers that feed forward, one of them shared, all with the
// square of relu, chosen by a sigmoid with a bias.
#include "model/nemotron_h.h"

namespace weir {

extern const ArchitectureInfo kNemotronHMoe;
const ArchitectureInfo kNemotronHMoe = {
    .name = "nemotron_h_moe",
    .models = "Nemotron 3 Nano (30B-A3B)",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      return LoadNemotronH(file, "nemotron_h_moe", true, backend, ledger);
    },
};

}  // namespace weir
