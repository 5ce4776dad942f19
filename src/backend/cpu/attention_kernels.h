// SPDX-License-Identifier: Apache-2.0
// The two attention kernels behind attention.cc. Both work on one KV head of one segment; all query heads that share it
// are handled together. "Query row" j is head j % group of new row j / group, so that rows are causally ordered.
//
// - AttendRows: many query rows over all slots that they see. SIMD lanes are query rows: stored keys and values are
//   decoded once per tile, to F32 or to pairs of bfloat16 (AttentionArgs::bf16), and broadcast, so that neither the
//   scores nor the softmax need a horizontal sum.
// - AttendSlots: few query rows over ranges of slots; partial results are merged by MergePartials. SIMD lanes are
//   elements of a head; stored bytes are read once and nothing larger than the scores of a block is written.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "ops/attention.h"
#include "ops/kv_slots.h"
#include "ops/score_noise.h"

namespace weir::cpu {

inline constexpr int64_t kRowBlock = 64;    // query rows of one AttendRows call
inline constexpr int64_t kTileSlots = 64;   // slots decoded together there; a multiple of kRopeTile
inline constexpr int64_t kMaxSlotRows = 8;  // query rows that AttendSlots accepts
inline constexpr int64_t kSlotBlock = 256;  // slots scored together there; a multiple of kRopeTile
static_assert(kTileSlots % kRopeTile == 0 && kSlotBlock % kRopeTile == 0);
// Floats from one row's scores to the next: groups of four slots that begin anywhere, or of as many as a vector has
// lanes that begin with a tile, may write past the end of a block.
inline constexpr int64_t kScoreStride = kSlotBlock + 16;
// Consecutive slots, in the form of a list.
inline constexpr auto kInOrder = [] {
  std::array<int32_t, kSlotBlock> out = {};
  for (int32_t i = 0; i < kSlotBlock; ++i) out[i] = i;
  return out;
}();

// One KV head of one segment.
struct HeadTask {
  const AttentionArgs* args = nullptr;
  const AttentionSegment* segment = nullptr;
  int64_t kv_head = 0;

  int64_t group() const { return args->n_heads / args->n_kv_heads; }
  int64_t n_query_rows() const { return segment->n_rows * group(); }
  // The slots to attend to, ascending: these, or all of them (nullptr).
  const int32_t* listed() const { return segment->selected == nullptr ? nullptr : segment->selected[kv_head]; }
  int64_t n_listed() const { return segment->selected == nullptr ? 0 : segment->n_selected[kv_head]; }
  // Few rows wait for memory, which is read faster in order than by a list: a list of most slots only picks from the
  // scores of all. Not where codes of a few bits are decoded, which takes longer than reading them.
  bool picks() const {
    return segment->selected != nullptr && n_query_rows() <= kMaxSlotRows && !IsTransformed(args->k_type) &&
           2 * n_listed() >= segment->n_slots[kv_head];
  }
  // The slots to read: these, or all of them (nullptr). The kernels count by index in this list.
  const int32_t* selected() const { return picks() ? nullptr : listed(); }
  int64_t n_slots() const { return selected() == nullptr ? segment->n_slots[kv_head] : n_listed(); }
  // Number of them that query row j sees, from the first on.
  int64_t n_visible(int64_t j) const {
    return segment->two_way ? n_slots() : n_slots() - segment->n_rows + j / group() + 1;
  }
  // The slot of query row j, which is its position with un-rotated keys.
  int64_t own_slot(int64_t j) const { return segment->n_slots[kv_head] - segment->n_rows + j / group(); }
  // Index of the first one that it sees; later rows begin no earlier.
  int64_t first_visible(int64_t j) const {
    if (segment->first_slot == nullptr) return 0;
    const int32_t slot = segment->first_slot[kv_head][j / group()];
    return selected() == nullptr ? slot : std::lower_bound(selected(), selected() + n_slots(), slot) - selected();
  }
  int64_t row(int64_t j) const { return segment->first_row + j / group(); }
  int64_t column(int64_t j) const { return (kv_head * group() + j % group()) * args->head_dim; }
  // The sink of query row j in units of the kernels' scores, which carry a factor of log2 e. REQUIRES: args->sinks.
  float sink(int64_t j) const { return args->sinks[kv_head * group() + j % group()] * 1.44269504f; }
  const float* q(int64_t j) const { return args->q + row(j) * args->q_stride + column(j); }
  float* out(int64_t j) const { return args->out + row(j) * args->out_stride + column(j); }
  // Rotated pairs of a head, 0 without rotary embedding.
  int64_t n_pairs() const { return args->rope != nullptr ? args->rope->n_rot / 2 : 0; }
  bool rotate_keys() const { return n_pairs() > 0 && !args->keys_rotated; }
};

// Panels that share a decoded tile: decoding and rotating costs about a sixth of a panel's arithmetic. Fewer for large
// heads, so that the panels stay in the second-level cache.
inline constexpr int64_t kMaxPanels = 4;
inline int64_t MaxPanels(int64_t head_dim) { return head_dim <= 64 ? kMaxPanels : head_dim <= 128 ? 2 : 1; }

// A good number of rows for one AttendRows call, given n_query_rows of a head. Results do not depend on it, so it may
// depend on the number of threads: large blocks decode less often, but every thread should get a few.
int64_t RowBlock(const AttentionArgs& args, int64_t n_query_rows, int n_threads);

// Attention that some rows gave to each slot, summed over rows and query heads, from the weights that AttendRows
// computes anyway.
struct ScoreSink {
  int64_t first = 0, end = 0;  // the query rows that vote
  // Panels are counted from query row 0 of the head, kRowBlock rows each, whichever call computes them:
  float* sums = nullptr;              // [panels from the first one that votes, stride]
  int64_t stride = 0;                 // at least the head's slots, a multiple of kTileSlots
  float* weights = nullptr;           // room for the panels of one call: PanelWeightFloats(n_slots) each
  const ScoreNoise* noise = nullptr;  // of the votes, or nullptr. REQUIRES: every row's temperature is 1

  int64_t first_panel() const { return first / kRowBlock; }
};
// A panel's weights [tiles, kTileSlots, kRowBlock], and the maxima [tiles, kRowBlock] that they are relative to.
inline int64_t PanelWeightFloats(int64_t n_slots) {
  return (n_slots + kTileSlots - 1) / kTileSlots * (kTileSlots + 1) * kRowBlock;
}

// Query rows [first, first + n), n <= MaxPanels(head_dim) * kRowBlock. A row's result does not depend on the rows it is
// grouped with. `scratch`: AttendRowsFloats(head_dim) floats, 64-byte aligned. With a sink (may be nullptr), `first` is
// a multiple of kRowBlock, and the sums of all panels with voting rows are written.
void AttendRows(const HeadTask& task, int64_t first, int64_t n, const ScoreSink* sink, float* scratch);
int64_t AttendRowsFloats(int64_t head_dim);

// Floats of one query row's partial result: the weighted sum of values [head_dim], then the largest score and the sum
// of weights, padded to whole cache lines.
inline int64_t PartialFloats(int64_t head_dim) { return (head_dim + 2 + 15) / 16 * 16; }

// All query rows (at most kMaxSlotRows) over slots [first, end), in ranges of `range` with a partial result each; first
// and range are multiples of kSlotBlock.
//   partials: [ranges, n_query_rows, PartialFloats(head_dim)], 64-byte aligned
//   scratch: AttendSlotsFloats(head_dim) floats, 64-byte aligned
void AttendSlots(const HeadTask& task, int64_t first, int64_t end, int64_t range, float* partials, float* scratch);
int64_t AttendSlotsFloats(int64_t head_dim);

// Writes the outputs of a task from the partial results of its ranges, in order: [n_ranges, n_query_rows, ...].
void MergePartials(const HeadTask& task, int64_t n_ranges, const float* partials);

}  // namespace weir::cpu
