// SPDX-License-Identifier: Apache-2.0
// The two kernels behind column_scores.cc. Both work on a batch of query rows of one KV head and on blocks of
// kSlotBlock slots; SIMD lanes are slots wherever weights are touched.
//
// "Query row" i of KV head's group is declared row i % n_rows of query head i / n_rows of the group: the rows of a head
// are consecutive, so that one vector of sums per slot is enough to reduce them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/attention_kernels.h"
#include "ops/column_scores.h"

namespace weir::cpu {

inline constexpr int64_t kBatchRows = 64;  // query rows in flight, all KV heads together
inline constexpr int64_t kWeightPad = 64;  // slots of a block are written up to a multiple of it

inline int64_t SlotBlocks(int64_t n_slots) { return (n_slots + kSlotBlock - 1) / kSlotBlock; }

// Query rows [first, first + n) of one KV head, and where their results go.
struct ScoreBatch {
  const ColumnScoresArgs* args = nullptr;
  HeadTask task;
  int64_t first = 0, n = 0;
  float* weights = nullptr;   // [blocks, n, kSlotBlock] relative to the row's largest score of the block
  float* max = nullptr;       // [blocks, n_padded] that score
  float* sum = nullptr;       // [blocks, n_padded] sum of the row's weights in the block
  float* row_sums = nullptr;  // [n_slots, padded] R of the query head whose rows continue in the next batch
  float* scores = nullptr;    // [n_slots, padded] the finished query heads, reduced; the mean still a sum

  int64_t n_rows() const { return args->row_end - args->row_begin; }
  int64_t n_padded() const { return (n + 15) / 16 * 16; }
  int64_t n_query_rows() const { return n_rows() * task.group(); }
  bool is_last() const { return first + n == n_query_rows(); }
  // Query row i of the batch, in HeadTask's numbering.
  int64_t row(int64_t i) const {
    return (args->row_begin + (first + i) % n_rows()) * task.group() + (first + i) / n_rows();
  }
  bool ends_head(int64_t i) const { return (first + i + 1) % n_rows() == 0; }
  // The oldest slot that any of the rows sees.
  int64_t first_slot() const {
    int64_t out = task.first_visible(row(0));
    for (int64_t i = 1; i < n; ++i) out = std::min(out, task.first_visible(row(i)));
    return out;
  }
  // Number of slots up to the newest that any of the rows sees.
  int64_t n_seen() const {
    int64_t out = 0;
    for (int64_t i = 0; i < n; ++i) out = std::max(out, task.n_visible(row(i)));
    return out;
  }
};

// Fills weights, max and sum of blocks [first, end), as far as the rows see them.
//   scratch: ScoreBlocksFloats(head_dim) floats, 64-byte aligned
void ScoreBlocks(const ScoreBatch& batch, int64_t first, int64_t end, float* scratch);
int64_t ScoreBlocksFloats(int64_t head_dim);

// out[0 .. n) from reduced heads, times `factor`, which turns a sum into a mean.
void WriteScores(const ColumnScoresArgs& args, const float* scores, float factor, int64_t n, float* out);

// Needs max and sum of all blocks. Adds blocks [first, end) to row_sums and scores.
void ReduceBlocks(const ScoreBatch& batch, int64_t first, int64_t end);

}  // namespace weir::cpu
