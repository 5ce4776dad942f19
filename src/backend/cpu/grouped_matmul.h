// SPDX-License-Identifier: Apache-2.0
// Products of groups of rows on the CPU: all groups' panels and rows are distributed over the pool in one round, so
// that experts of few rows do not wait for each other.
#pragma once

#include "base/threads.h"
#include "ops/grouped_matmul.h"

namespace weir::cpu {

// REQUIRES: every outs[i].w was made by PackedMatrix::Make. Scratch: MatMulScratchBytes() (matmul.h).
void GroupedMatMul(const GroupedMatMulArgs& args, ThreadPool& pool);

}  // namespace weir::cpu
