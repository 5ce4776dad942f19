// SPDX-License-Identifier: Apache-2.0
// What `granite` and `granitemoe` share: everything but their names.
#pragma once

#include <memory>

#include "model/architecture.h"

namespace weir {

// As `llama`, with factors on embeddings, attention scores, what a block adds to the stream, and logits. A file that
// names experts has them on every layer, beside a shared one that some models have. Files of Granite 4 may say that
// nothing is rotated.
Result<std::unique_ptr<Model>> LoadGranite(const GgufFile& file, const char* arch, Backend& backend, Ledger& ledger);

}  // namespace weir
