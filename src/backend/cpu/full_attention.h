// SPDX-License-Identifier: Apache-2.0
// CPU version of ops/full_attention.h. Work is divided into heads and blocks of rows, independent of the number of
// threads: the same call gives the same bytes for every pool on a given SIMD target.
#pragma once

#include <cstdint>

#include "base/threads.h"
#include "ops/full_attention.h"

namespace weir::cpu {

void FullAttention(const FullAttentionArgs& args, ThreadPool& pool);

// Bytes of scratch: every head's transposed keys and its values, padded to whole vectors; a block of scores per thread.
int64_t FullAttentionScratchBytes(int64_t n_heads, int64_t head_dim, int64_t max_kv, int n_threads);

}  // namespace weir::cpu
