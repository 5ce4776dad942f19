// SPDX-License-Identifier: Apache-2.0
// Ways of rows to their experts and back on the CPU, spread over the pool.
#pragma once

#include "base/threads.h"
#include "ops/experts.h"

namespace weir::cpu {

void GatherRows(const GatherRowsArgs& args, ThreadPool& pool);
// Every task has columns of its own and adds all rows there, one after the other: the reference's sums.
void ScatterAddRows(const ScatterAddRowsArgs& args, ThreadPool& pool);

}  // namespace weir::cpu
