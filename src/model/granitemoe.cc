// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Granite with experts: `granite` with experts in every layer, whose weights sum to one, beside a shared one that some
// models have.
#include "model/granite.h"

namespace weir {

extern const ArchitectureInfo kGranitemoe;
const ArchitectureInfo kGranitemoe = {
    .name = "granitemoe",
    .models = "Granite 3 with experts (1B-A400M, 3B-A800M)",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      return LoadGranite(file, "granitemoe", backend, ledger);
    },
};

}  // namespace weir
