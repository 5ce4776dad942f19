// SPDX-License-Identifier: Apache-2.0
// CPU version of ops/attention.h: SIMD with run-time dispatch, spread over a thread pool.
//
// The work is divided by shapes alone (blocks of rows, ranges of slots), never by the number of threads, and partial
// results are merged in a fixed order: the same call gives the same bytes for every pool on a given SIMD target.
//
// REQUIRES, beyond ops/attention.h: head_dim is a multiple of 8 and at most kMaxHeadDim.
#pragma once

#include <cstdint>

#include "base/threads.h"
#include "ops/attention.h"

namespace weir::cpu {

// args.scratch must hold AttentionScratchBytes(shape, pool.n_threads()) bytes of a shape that covers the call.
void Attention(const AttentionArgs& args, ThreadPool& pool);

// Bytes of scratch for every call within `shape`. Grows with the threads and with max_slots up to a small bound; not
// with max_rows.
int64_t AttentionScratchBytes(const AttentionShape& shape, int n_threads);

}  // namespace weir::cpu
