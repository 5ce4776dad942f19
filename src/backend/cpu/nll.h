// SPDX-License-Identifier: Apache-2.0
// Likelihood of given tokens on the CPU, fused with the projection onto the vocabulary.
#pragma once

#include <cstdint>

#include "base/threads.h"
#include "ops/nll.h"

namespace weir::cpu {

// REQUIRES: args.head was made by PackedMatrix::Make; args.scratch holds at least NllScratchBytes(...) for these sizes
// and this pool.
void HeadNll(const NllArgs& args, ThreadPool& pool);

// The rounded activations, a few numbers per row and one tile of logits per thread. Does not depend on the vocabulary.
int64_t NllScratchBytes(int64_t n_rows, int64_t n_in, int n_threads);

// log(sum exp(logits)) on the calling thread: one vocabulary takes less time than waking the workers. NaN if any logit
// is NaN. REQUIRES: n > 0.
float LogSumExp(const float* logits, int64_t n);

}  // namespace weir::cpu
