// SPDX-License-Identifier: Apache-2.0
// Likelihood of given tokens on the CPU, fused with the projection onto the vocabulary.
#pragma once

#include <cstdint>

#include "base/threads.h"
#include "ops/nll.h"

namespace weir::cpu {

// REQUIRES: args.head was made by PackedMatrix::Make; args.scratch holds NllScratchBytes(...) of at least these sizes
// and of this pool.
void HeadNll(const NllArgs& args, ThreadPool& pool);

// The rounded activations, a few numbers for every row and one tile of logits for every thread. Does not depend on the
// vocabulary.
int64_t NllScratchBytes(int64_t n_rows, int64_t n_in, int n_threads);

// log(sum exp(logits)) on the calling thread: a vocabulary takes less time than waking the workers. NaN for a NaN among
// the logits. REQUIRES: n > 0.
float LogSumExp(const float* logits, int64_t n);

}  // namespace weir::cpu
