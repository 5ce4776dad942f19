// SPDX-License-Identifier: Apache-2.0
// What the LFM2 families share.
#pragma once

#include <memory>

#include "model/architecture.h"
#include "model/experts.h"

namespace weir {

// `experts`: the family's settings of them (ReadExpertsConfig()); a file may have none.
Result<std::unique_ptr<Model>> LoadLfm2(const GgufFile& file, const char* arch, const ExpertsConfig& experts,
                                        Backend& backend, Ledger& ledger);

}  // namespace weir
