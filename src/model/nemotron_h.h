// SPDX-License-Identifier: Apache-2.0
// What the Nemotron-H families share.
#pragma once

#include <memory>

#include "model/architecture.h"

namespace weir {

// Layers that feed forward have experts where the file names some.
Result<std::unique_ptr<Model>> LoadNemotronH(const GgufFile& file, const char* arch, bool experts, Backend& backend,
                                             Ledger& ledger);

}  // namespace weir
