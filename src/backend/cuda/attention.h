// SPDX-License-Identifier: Apache-2.0
// Attention over slots, with statistics, on a device. Contracts: ops/attention.h, ops/column_scores.h.
//
// Queries are rotated and scaled once into scratch. Kernels load the slots in tiles into shared memory, decoded and,
// where keys are stored un-rotated, rotated to their slots' positions. They keep a running maximum and sum, so memory
// does not depend on the number of slots. Each row's log of the sum stays in scratch. With it the statistics take one
// more pass over the keys, for the declared rows only, and their weights are never stored.
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
// For any of the three.
int64_t AttentionScratchBytes(const AttentionShape& shape);

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
  const float* q = nullptr;  // [n_rows, n_heads, dim] of the segment, rotated and scaled
  float* lse = nullptr;      // [n_rows, n_heads]: log of the sum of exponentials
  float* out = nullptr;      // [n_rows, n_heads, dim], rows out_stride apart; nullptr: lse alone
  int64_t out_stride = 0;
  float* partial = nullptr;  // [n_splits, n_rows, n_heads, dim + 2], when n_splits > 1
  int32_t n_splits = 1;
  int32_t n_rows = 0, n_heads = 0, group = 0, dim = 0;  // group: query heads of a KV head
  int32_t row_begin = 0, row_end = 0;                   // rows that attend or vote
  int32_t kv_begin = 0;                                 // KV head of head[0]
  int32_t tile = 0;                                     // slots loaded at once
  DType k_type = DType::kF16, v_type = DType::kF16;
  int64_t k_slot_bytes = 0, v_slot_bytes = 0;
  float softcap = 0;
  const float* sinks = nullptr;  // [n_heads] or nullptr
  Angles keys;                   // rotation of stored keys; n_pairs 0: they are already rotated
};

// Layout of a call's scratch.
struct AttentionScratch {
  float* q = nullptr;        // [rows, n_heads, dim], rows of the call
  float* lse = nullptr;      // [rows, n_heads]
  float* partial = nullptr;  // kPartialRows vectors of dim + 2
  float* heads = nullptr;    // [n_kv_heads, max_slots], sums of one head each
  static constexpr int64_t kPartialRows = 8192;
};

// Shared by both files: the heads of a call's segments with lists on the device, and its constants.
AttentionCall CallOf(const AttentionArgs& args, const AttentionSegment& segment, const AttentionScratch& scratch);
SegmentHeads HeadsOf(Device& device, const AttentionArgs& args, const AttentionSegment& segment, int64_t kv_begin,
                     int64_t n);
AttentionScratch ScratchOf(const AttentionArgs& args, int64_t n_rows);
int64_t RowsOf(const AttentionArgs& args);
// Fills scratch.q for a segment, and scratch.lse for rows [row_begin, row_end) of it; the output goes to args.out if it
// is set.
void Attend(Device& device, const AttentionArgs& args, const AttentionSegment& segment, const AttentionScratch& scratch,
            int64_t row_begin, int64_t row_end);

// Many rows, on the half-precision matrix units (attention_many.cu): whether a call qualifies, and the call.
bool HasAttendMany(const AttentionCall& call);
void AttendManyRows(Device& device, const AttentionCall& call, const SegmentHeads& heads, int64_t n_heads);

inline constexpr int kTileSlots = 32;
inline constexpr int kAttentionThreads = 128;

// Loads keys of the slots idx0 .. idx0 + n (of the list, if there is one) into tile[n, dim], rows `pitch` floats apart,
// rotated.
WEIR_DEVICE void LoadKeys(const AttentionCall& call, const HeadSlots& head, int64_t idx0, int n, float* tile,
                          int pitch) {
  const int n_pairs = call.keys.n_pairs;
  for (int i = ThreadIdx(); i < n * n_pairs; i += NumThreads()) {
    const int s = i / n_pairs, p = i % n_pairs;
    const int64_t slot = head.selected != nullptr ? head.selected[idx0 + s] : idx0 + s;
    const uint8_t* key = head.k + slot * call.k_slot_bytes;
    const float x0 = SlotElement(call.k_type, key, p), x1 = SlotElement(call.k_type, key, p + n_pairs);
    float cosine, sine;
    AngleAt(call.keys, slot, p, &cosine, &sine);
    tile[s * pitch + p] = x0 * cosine - x1 * sine;
    tile[s * pitch + p + n_pairs] = x1 * cosine + x0 * sine;
  }
  const int n_plain = call.dim - 2 * n_pairs;
  for (int i = ThreadIdx(); i < n * n_plain; i += NumThreads()) {
    const int s = i / n_plain, e = 2 * n_pairs + i % n_plain;
    const int64_t slot = head.selected != nullptr ? head.selected[idx0 + s] : idx0 + s;
    tile[s * pitch + e] = SlotElement(call.k_type, head.k + slot * call.k_slot_bytes, e);
  }
}

// A score as softmax takes it.
WEIR_DEVICE float Capped(float score, float softcap) { return softcap > 0 ? softcap * tanhf(score / softcap) : score; }

// The slots that row i of the segment sees: [first, last].
WEIR_DEVICE int32_t LastSlot(const AttentionCall& call, const HeadSlots& head, int64_t i) {
  return static_cast<int32_t>(head.n_slots - call.n_rows + i);
}
WEIR_DEVICE int32_t FirstSlot(const HeadSlots& head, int64_t i) { return head.first != nullptr ? head.first[i] : 0; }

}  // namespace weir::WEIR_GPU
