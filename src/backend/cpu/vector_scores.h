// SPDX-License-Identifier: Apache-2.0
// Statistics of stored keys and values on the CPU (ops/vector_scores.h): one task per head.
#pragma once

#include <span>

#include "base/threads.h"
#include "ops/vector_scores.h"

namespace weir::cpu {

// Equal for every number of threads; within 1e-5 of the reference. REQUIRES: entries write disjoint arrays.
void VectorScores(std::span<const VectorScoresArgs> args, ThreadPool& pool);

}  // namespace weir::cpu
