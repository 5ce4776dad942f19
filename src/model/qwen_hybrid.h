// SPDX-License-Identifier: Apache-2.0
// The Qwens with layers of gated DeltaNet between those that attend: Qwen3-Next, Qwen3.5 and later ones of their kind,
// dense or with experts. Attention is gated, and its heads are rotated in part. Qwen3.5's positions have three axes,
// whose pairs alternate (kv/axes.h). The blocks that predict several tokens at once (nextn) are not loaded.
#pragma once

#include <memory>

#include "model/architecture.h"

namespace weir {

struct QwenHybridOptions {
  bool experts = false;
  bool next = false;  // Qwen3-Next: heads of values in groups, and one tensor for alpha and beta
};
Result<std::unique_ptr<Model>> LoadQwenHybrid(const GgufFile& file, Backend& backend, Ledger& ledger, const char* arch,
                                              const QwenHybridOptions& options);

}  // namespace weir
