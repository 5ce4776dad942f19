// SPDX-License-Identifier: Apache-2.0
// CPU version of ops/column_scores.h: SIMD with run-time dispatch, spread over a thread pool.
//
// Declared rows are processed in batches (kBatchRows query rows). One pass scores the batch against every block of
// slots and keeps the weights relative to the block's own maximum; once all blocks are known, a second pass needs one
// multiplication a weight to normalise and reduce them. The work is divided by shapes alone and every sum has a fixed
// order: the same call gives the same bytes for every pool on a given SIMD target.
//
// REQUIRES, beyond ops/column_scores.h: head_dim is a multiple of 8 and at most kMaxHeadDim.
#pragma once

#include <cstdint>

#include "base/threads.h"
#include "ops/column_scores.h"

namespace weir::cpu {

// args.scratch must hold ColumnScoresScratchBytes(shape, pool.n_threads()) bytes of a shape that covers the call.
void ColumnScores(const ColumnScoresArgs& args, ThreadPool& pool);

// Bytes of scratch for every call within `shape`, whatever its rows: about 4 * (kBatchRows + 2 * n_kv_heads) per slot
// of max_slots, plus a little per thread.
int64_t ColumnScoresScratchBytes(const AttentionShape& shape, int n_threads);

}  // namespace weir::cpu
