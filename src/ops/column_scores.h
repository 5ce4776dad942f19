// SPDX-License-Identifier: Apache-2.0
// Attention statistics: how much some rows attended to each slot, reduced on the fly. This is the signal of every
// policy that ranks by attention (Inf-MLLM 3.2, InfiniPot 3.3, H2O, TOVA, SnapKV, A-VL).
//
//   p[r, h, s] = softmax_s(scale * q[r, h, :] . k[kv(h), s, :])   exactly the weights ops/attention.h applies, soft
//                                                                 cap, window and sink included
//   rows:  R[h, s]  = reduce over the declared rows r of p[r, h, s]          sum or max (the mean is the sum / n_rows)
//   heads: out[j, s] = reduce over the query heads h of group j of R[h, s]   mean, max or sum
//
// where group j is KV head j's query heads, or all heads of the layer when `all_heads` is set (j = 0 only). Only the
// declared rows are computed, in F32, with memory O(n_slots) per worker: the matrix is never materialised.
#pragma once

#include <cstdint>

#include "ops/attention.h"
#include "ops/score_noise.h"

namespace weir {

enum class RowReduce { kSum, kMax };
enum class HeadReduce { kMean, kMax, kSum };

struct ColumnScoresArgs {
  // The attention call whose weights are reduced: q, shapes, key form, rope; exactly one segment, values and out
  // unused. REQUIRES: no list of selected slots.
  // Row r of the segment sees the same slots as in that call.
  AttentionArgs attention;
  int64_t row_begin = 0, row_end = 0;  // declared rows, relative to the segment's first row; at least one
  RowReduce rows = RowReduce::kSum;
  HeadReduce heads = HeadReduce::kMean;
  bool all_heads = false;
  // KV head j's scores go to out[j][0 .. n_slots[j]), those of all heads to out[0] (all KV heads then have equal
  // n_slots). Slots that a row cannot see get nothing from it.
  float* const* out = nullptr;
  bool accumulate = false;  // kSum: add to the contents of out; kMax: keep the larger
  float weight = 1;         // of this call's scores, before that
  ScoreNoise noise;         // p has noise and a temperature, if it is on
  void* scratch = nullptr;  // Backend::ColumnScoresScratchBytes(shape) bytes, 64-byte aligned
};

namespace ref {
void ColumnScores(const ColumnScoresArgs& args);
}  // namespace ref
}  // namespace weir
