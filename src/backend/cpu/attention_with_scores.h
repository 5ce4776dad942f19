// SPDX-License-Identifier: Apache-2.0
// Attention and its statistics in one pass: CPU version of Backend::AttentionWithScores().
//
// Scores that are sums over rows and heads need only the weights that attention computes anyway. The weights are kept
// for the current panel of rows (kRowBlock rows by the slots they see) until their sums are known, then added up. That
// costs a few hundredths of an attention call; recomputing the voting rows would cost their share of one. Everything
// else (maxima, few rows, several segments, very long pots) takes the second pass of ops/column_scores.h.
//
// The work is divided by shapes and every sum has a fixed order: the same bytes for every pool on a given SIMD target.
#pragma once

#include <cstdint>
#include <span>

#include "base/threads.h"
#include "ops/column_scores.h"

namespace weir::cpu {

// args.scratch and the scratch of every score: AttentionWithScoresScratchBytes(shape, pool.n_threads()) bytes of a
// shape that covers the call.
void AttentionWithScores(const AttentionArgs& args, std::span<const ColumnScoresArgs> scores, ThreadPool& pool);

int64_t AttentionWithScoresScratchBytes(const AttentionShape& shape, int n_threads);

}  // namespace weir::cpu
