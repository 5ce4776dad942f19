// SPDX-License-Identifier: Apache-2.0
// Attention of new rows over the slots of their pots, one layer, several pots in one call.
//
//   out[r, h, :] = sum_s p_s * v[kv(h), s, :]
//   p = softmax_s(z),  z = scale * q[r, h, :] . k[kv(h), s, :],  kv(h) = h / (n_heads / n_kv_heads)
//
// With softcap c > 0, z is c * tanh(z / c) (Gemma 2, arXiv 2408.00118, section 2). With sinks, the softmax has one more
// score, sinks[h], without a value: a row's weights sum to less than one (gpt-oss, arXiv 2508.10925, section 2.1).
//
// The new rows' own keys and values are already stored: they are the last n_rows slots of every head, and row i of a
// segment sees slots [0, n_slots - n_rows + i] (causal inside the chunk, unless it is two_way). A sliding window
// excludes the oldest of them: with first_slot, row i sees [first_slot[kv(h)][i], n_slots - n_rows + i].
//
// Two forms of stored keys:
// - rotated (position policy ABS): keys were rotated when stored; only q is rotated, by the row's own (cos, sin).
// - un-rotated (CACHE, RESET): the position of slot s is s itself, for keys and for the query (n_slots - n_rows + i);
//   the kernel rotates on the fly with the two-level table of rope.h.
//
// REQUIRES: n_heads a multiple of n_kv_heads; head_dim <= kMaxHeadDim; k_type and v_type among the slot types of
// kv_slots.h; 1 <= n_rows <= n_slots for every segment and head; with un-rotated keys, n_slots <= rope->n_positions.
// Results do not depend on how rows are grouped into segments and calls beyond float rounding (with `bf16`, that of the
// factors); `out` may not overlap q. Where slots are of a transformed type, queries may be rounded to 16 bits of their
// largest element and weights to 16 bits of the largest of some slots.
#pragma once

#include <cstdint>
#include <span>

#include "ops/rope.h"
#include "quant/dtype.h"

namespace weir {

inline constexpr int64_t kMaxHeadDim = 576;

// The rows of one pot.
struct AttentionSegment {
  int64_t first_row = 0, n_rows = 0;  // rows of q and out
  const uint8_t* const* k = nullptr;  // [n_kv_heads] key arrays
  const uint8_t* const* v = nullptr;  // [n_kv_heads] value arrays
  const int32_t* n_slots = nullptr;   // [n_kv_heads] slots in use, the new rows included (ragged over heads)
  // The slots to read: [n_kv_heads] lists of n_selected[h] slots, strictly ascending, ending with the new rows' own
  // n_rows; nullptr: all slots. A row sees the listed slots up to its own. Slots that are not listed may be read, as
  // memory in order is faster, but have no part in any result; the others are read in place: this is how a step attends
  // to a part of its pot (A-VL, arXiv 2409.14846, section 4.3) without moving anything.
  const int32_t* const* selected = nullptr;
  const int32_t* n_selected = nullptr;
  // Start of the window: [n_kv_heads] arrays of [n_rows], or nullptr for 0 everywhere. REQUIRES: non-decreasing from
  // row to row, never beyond the row's own slot.
  const int32_t* const* first_slot = nullptr;
  // The rows see each other: each sees slots up to the last row's (Gemma 3's pictures, arXiv 2503.19786). Positions and
  // the start of a window stay the row's own.
  bool two_way = false;
};

struct AttentionArgs {
  int64_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  float scale = 0;               // usually 1 / sqrt(head_dim)
  float softcap = 0;             // 0: none
  const float* sinks = nullptr;  // [n_heads], as they are: neither scaled nor capped; nullptr: none
  const float* q = nullptr;      // [n_rows, n_heads, head_dim], not rotated; rows q_stride floats apart
  int64_t q_stride = 0;
  float* out = nullptr;  // [n_rows, n_heads, head_dim]; rows out_stride floats apart
  int64_t out_stride = 0;
  DType k_type = DType::kF16, v_type = DType::kF16;
  const RopeTable* rope = nullptr;  // nullptr: no rotary embedding at all
  bool keys_rotated = false;
  const float* row_cos = nullptr;  // keys_rotated: [n_rows, n_rot/2] of q's positions
  const float* row_sin = nullptr;
  // Inputs of the products may be rounded to bfloat16 (8 bits of precision); sums, softmax and everything else stay
  // F32. Used only where it is faster; rows processed singly may be computed without it.
  bool bf16 = false;
  std::span<const AttentionSegment> segments;
  void* scratch = nullptr;  // Backend::AttentionScratchBytes(...) bytes, 64-byte aligned
};

// The largest shapes of a session, which determine the size of its scratch.
struct AttentionShape {
  int64_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  int64_t max_rows = 0;   // rows of one call, over all segments
  int64_t max_slots = 0;  // slots of the largest head
};

namespace ref {
// Scores, softmax and sums in double; allocates nothing and uses no scratch.
void Attention(const AttentionArgs& args);
}  // namespace ref
}  // namespace weir
