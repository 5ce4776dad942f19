// SPDX-License-Identifier: Apache-2.0
// Attention over slots, with statistics, on a device. Contracts: ops/attention.h, ops/column_scores.h.
//
// Queries are rotated and scaled once into scratch. Few queries (attention_few.cu) meet the slots as they are stored,
// decoded and, where keys are stored un-rotated, rotated on the way, in F32. For many (attention_many.cu) keys and
// values are first rotated and converted to halves in scratch, once a call, and meet the half matrix units. Both keep a
// running maximum and sum, so memory does not depend on rows times slots, and share the slots out over blocks whose
// results are combined. Each row's log of the sum stays in scratch. The statistics (column_scores.cu) take the scores
// that few queries left in scratch, or one more product of the halves.
#pragma once

#include <span>

#include "backend/cuda/device.h"
#include "backend/cuda/slots.h"
#include "ops/attention.h"
#include "ops/column_scores.h"

namespace weir::WEIR_GPU {

void Attention(Device& device, const AttentionArgs& args);
void ColumnScores(Device& device, const ColumnScoresArgs& args);
void AttentionWithScores(Device& device, const AttentionArgs& args, std::span<const ColumnScoresArgs> scores);
int64_t AttentionScratchBytes(const AttentionShape& shape);
// For any of the three.
int64_t ColumnScoresScratchBytes(const AttentionShape& shape);

// One KV head of a segment, as kernels see it.
struct HeadSlots {
  const uint8_t* k = nullptr;
  const uint8_t* v = nullptr;
  const int32_t* first = nullptr;     // [n_rows] start of the rows' windows, or nullptr
  const int32_t* selected = nullptr;  // [n_selected], or nullptr: all
  int32_t n_slots = 0, n_selected = 0;
};
// KV heads of one launch: they are kernel parameters, which are limited to 4 KiB.
inline constexpr int kHeadsALaunch = 64;
struct SegmentHeads {
  HeadSlots head[kHeadsALaunch];
};

// One segment's rows over some of its KV heads.
struct AttentionCall {
  // [n_rows, n_heads, dim] of the segment, rotated and scaled: floats, or halves for many rows
  const float* q = nullptr;
  const uint16_t* half_q = nullptr;
  float* lse = nullptr;  // [n_rows, n_heads]: log of the sum of exponentials
  float* out = nullptr;  // [n_rows, n_heads, dim], rows out_stride apart; nullptr: lse alone
  int64_t out_stride = 0;
  float* partial = nullptr;  // [n_splits, rows of the call, heads of the call, dim + 2], when n_splits > 1
  float* z = nullptr;        // [row_end - row_begin, n_heads, z_stride]: few queries leave their scores; nullptr: not
  int64_t z_stride = 0;
  int32_t n_splits = 1;
  int32_t n_rows = 0, n_heads = 0, group = 0, dim = 0;  // group: query heads of a KV head
  int32_t row_begin = 0, row_end = 0;                   // rows that attend or vote
  int32_t kv_begin = 0, n_kv = 0;                       // KV heads of the call
  bool two_way = false;
  DType k_type = DType::kF16, v_type = DType::kF16;
  int64_t k_slot_bytes = 0, v_slot_bytes = 0;
  float softcap = 0;
  const float* sinks = nullptr;  // [n_heads] or nullptr
  Angles keys;                   // rotation of stored keys; n_pairs 0: they are already rotated
};

// Layout of a call's scratch.
struct AttentionScratch {
  static constexpr int64_t kPartialRows = 16384;
  static constexpr int64_t kHalvesBytes = int64_t{64} << 20;  // unless one head's are more
  static constexpr int64_t kScoreBytes = int64_t{4} << 20;    // unless one row's are more

  float* partial = nullptr;    // kPartialRows vectors of dim + 2
  float* q = nullptr;          // [rows, n_heads, dim], rows of the call; halves take the first half
  float* lse = nullptr;        // [rows, n_heads]
  uint16_t* halves = nullptr;  // [2, halves_heads, max_slots, dim]: keys and values of so many heads at once
  int64_t halves_heads = 0;
  // With statistics:
  float* z = nullptr;  // [z_rows, n_heads, max_slots]: scores of so many rows at once
  int64_t z_rows = 0;
  float* sums = nullptr;   // [n_heads, max_slots]: of rows so far
  float* heads = nullptr;  // [n_kv_heads, max_slots]: of one KV head each
  int64_t max_slots = 0;
  int64_t bytes = 0;
};

// Few queries, and their scores if `call` has z.
void AttendFewRows(Device& device, AttentionCall call, const SegmentHeads& heads);
// Many rows: whether calls of this shape qualify; keys and values as halves; the call, over them.
bool HasAttendMany(int64_t n_rows, int64_t group, int64_t dim);
SegmentHeads HalvesOf(Device& device, const AttentionCall& call, const SegmentHeads& heads,
                      const AttentionScratch& scratch);
void AttendManyRows(Device& device, AttentionCall call, const SegmentHeads& halves);
// Slots of the longest head, of lists if there are any.
int64_t MostSlots(const AttentionCall& call, const SegmentHeads& heads);
// Parts into which a head's slots are split, so that some `wanted` blocks run: `n_blocks` times the parts, none of
// which has fewer than `least_slots`.
int32_t Splits(const AttentionCall& call, int64_t n_blocks, int64_t wanted, int64_t n_slots, int64_t least_slots);
void Combine(Device& device, AttentionCall call);
inline constexpr int64_t kMaxSplits = 128;

// Statistics of a call's KV heads: from the scores of the call's rows; from the halves, for all declared rows; and, if
// heads are reduced over the layer, from what either has left.
void ScoreFewRows(Device& device, const AttentionCall& call, const SegmentHeads& heads, const ColumnScoresArgs& args,
                  const AttentionScratch& scratch);
void ScoreManyRows(Device& device, const AttentionCall& call, const SegmentHeads& halves, const ColumnScoresArgs& args,
                   const AttentionScratch& scratch);
void ScoreAllHeads(Device& device, const ColumnScoresArgs& args, const AttentionScratch& scratch);

inline constexpr int kAttentionThreads = 128;
inline constexpr float kLog2OfE = 1.44269504088896340736f;

// Rotates kN pairs.
template <int kN>
WEIR_DEVICE void RotatePairs(const float cosine[kN], const float sine[kN], float x0[kN], float x1[kN]) {
  WEIR_UNROLL
  for (int i = 0; i < kN; ++i) {
    const float a = x0[i], b = x1[i];
    x0[i] = fmaf(a, cosine[i], -(b * sine[i]));
    x1[i] = fmaf(b, cosine[i], a * sine[i]);
  }
}

// Elements p .. p + kN of a key and those n_pairs further, rotated. kN is 1 or 8, aligned as in SlotElements().
template <int kN>
WEIR_DEVICE void RotatedPairs(const AttentionCall& call, const uint8_t* key, int slot, int p, float x0[kN],
                              float x1[kN]) {
  SlotElements<kN>(call.k_type, key, p, x0);
  SlotElements<kN>(call.k_type, key, p + call.keys.n_pairs, x1);
  float cosine[kN], sine[kN];
  AnglesAt<kN>(call.keys, slot, p, cosine, sine);
  RotatePairs<kN>(cosine, sine, x0, x1);
}

// What a split has found for a row and a query head of the call's: its sum of weighted values, maximum and sum.
WEIR_DEVICE float* PartialOf(const AttentionCall& call, int split, int row, int head) {
  const int64_t rows = static_cast<int64_t>(split) * (call.row_end - call.row_begin) + row - call.row_begin;
  return call.partial + (rows * call.n_kv * call.group + head) * (call.dim + 2);
}

// A score as softmax takes it.
WEIR_DEVICE float Capped(float score, float softcap) { return softcap > 0 ? softcap * tanhf(score / softcap) : score; }

// The slots that row i of the segment sees: [first, last].
WEIR_DEVICE int32_t LastSlot(const AttentionCall& call, const HeadSlots& head, int64_t i) {
  return call.two_way ? head.n_slots - 1 : static_cast<int32_t>(head.n_slots - call.n_rows + i);
}
WEIR_DEVICE int32_t FirstSlot(const HeadSlots& head, int64_t i) { return head.first != nullptr ? head.first[i] : 0; }

}  // namespace weir::WEIR_GPU
