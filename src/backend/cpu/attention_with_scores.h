// SPDX-License-Identifier: Apache-2.0
// Attention and its statistics in one pass: CPU version of Backend::AttentionWithScores().
//
// Scores that are sums over rows and heads need nothing but the weights attention computes on its way. They are kept
// for the panel of rows at hand (kRowBlock rows by the slots they see) until its sums of weights are known, and added
// up: a few hundredths of an attention call, where computing the voting rows again costs their share of one. Everything
// else (maxima, few rows, several segments, very long pots) takes ops/column_scores.h's second pass.
//
// The work is cut by shapes and every sum has a fixed order: the same bytes for every pool on a given SIMD target.
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
