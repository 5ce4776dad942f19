// SPDX-License-Identifier: Apache-2.0
// Attention of many rows on the half-precision matrix units, as FlashAttention-2 does it (arXiv 2307.08691): a block
// has 128 queries of one KV head and processes the slots 64 at a time, copied a tile ahead. Scores, weights and outputs
// stay in registers; queries, keys, values and weights are rounded to halves, sums are F32.
#include <algorithm>

#include "backend/cuda/attention.h"

namespace weir::WEIR_GPU {
namespace {

// Keys and values of a call as halves, [n, dim] of each head: keys rotated, slots of a list one after the other.
struct Halves {
  uint16_t* k = nullptr;  // of head 0; nullptr: they are halves already
  uint16_t* v = nullptr;
  int64_t stride = 0;  // from head to head
};

template <int kN>
WEIR_DEVICE void StoreHalves(uint16_t* to, const float x[kN]) {
  if constexpr (kN == 1) {
    *to = FloatToHalf(x[0]);
  } else {
    uint32_t words[4];
    WEIR_UNROLL
    for (int i = 0; i < 4; ++i) {
      words[i] = static_cast<uint32_t>(FloatToHalf(x[2 * i])) | static_cast<uint32_t>(FloatToHalf(x[2 * i + 1])) << 16;
    }
    *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
  }
}

// Block (elements of slots, KV head, keys or values): a thread has kN elements, of keys with their pairs.
template <int kN>
WEIR_KERNEL void ConvertSlots(AttentionCall call, SegmentHeads heads, Halves to) {
  const HeadSlots& head = heads.head[BlockIdxY()];
  const int parts = call.dim / kN;
  const int idx = static_cast<int>(GlobalThread() / parts), e = static_cast<int>(GlobalThread() % parts) * kN;
  if (idx >= (head.selected != nullptr ? head.n_selected : head.n_slots)) return;
  const int slot = head.selected != nullptr ? head.selected[idx] : idx;
  if (slot < FirstSlot(head, call.row_begin)) return;  // no row sees it
  const int64_t at = BlockIdxY() * to.stride + static_cast<int64_t>(idx) * call.dim + e;
  float x[kN], pairs[kN];
  if (BlockIdxZ() == 1) {
    if (to.v == nullptr) return;
    SlotElements<kN>(call.v_type, head.v + slot * call.v_slot_bytes, e, x);
    StoreHalves<kN>(to.v + at, x);
    return;
  }
  const uint8_t* key = head.k + slot * call.k_slot_bytes;
  const int n_pairs = call.keys.n_pairs;
  if (to.k == nullptr || (e >= n_pairs && e < 2 * n_pairs)) return;
  if (e < n_pairs) {
    RotatedPairs<kN>(call, key, slot, e, x, pairs);
    StoreHalves<kN>(to.k + at + n_pairs, pairs);
  } else {
    SlotElements<kN>(call.k_type, key, e, x);
  }
  StoreHalves<kN>(to.k + at, x);
}

constexpr int kSlots = 64;  // copied at once
constexpr int kThreads = 256, kQueriesOfWarp = 16;
constexpr int kQueries = kThreads / kWarp * kQueriesOfWarp;
constexpr int kPad = 8;  // in halves: eight rows then begin in different banks

WEIR_DEVICE uint32_t TwoHalves(float low, float high) {
  return static_cast<uint32_t>(FloatToHalf(low)) | static_cast<uint32_t>(FloatToHalf(high)) << 16;
}

template <int kDim>
struct HalfTile {
  uint16_t k[kSlots][kDim + kPad], v[kSlots][kDim + kPad];
};

// Rows beyond n are copies of the last one: their weights are 0.
template <int kDim>
WEIR_DEVICE void CopyTile(const HeadSlots& head, int64_t idx0, int n, bool values, HalfTile<kDim>& tile) {
  constexpr int kParts = kDim / 8;
  WEIR_UNROLL
  for (int i = 0; i < kSlots * kParts / kThreads; ++i) {
    const int at = ThreadIdx() + i * kThreads, s = at / kParts, e = at % kParts * 8;
    const int64_t from = ((idx0 + (s < n ? s : n - 1)) * kDim + e) * 2;
    CopyAsync<16>(&tile.k[s][e], head.k + from);
    if (values) CopyAsync<16>(&tile.v[s][e], head.v + from);
  }
  CommitCopies();
}

// Row i of the segment sees numbers [first, last] of a head's slots or list.
WEIR_DEVICE int CountOf(const HeadSlots& head) { return head.selected != nullptr ? head.n_selected : head.n_slots; }
WEIR_DEVICE int LastOf(const AttentionCall& call, const HeadSlots& head, int i) {
  return CountOf(head) - 1 - (call.two_way ? 0 : call.n_rows - 1 - i);
}
WEIR_DEVICE int FirstOf(const HeadSlots& head, int i) {
  const int slot = FirstSlot(head, i);
  if (head.selected == nullptr || slot == 0) return slot;
  int low = 0, high = head.n_selected;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (head.selected[middle] < slot) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Block (split, KV head, tile of queries), over keys and values as halves.
template <int kDim>
WEIR_KERNEL WEIR_SHARING(kThreads, 1) void AttendMany(AttentionCall call, SegmentHeads heads) {
  constexpr int kSteps = kDim / 16, kColumns = kDim / 8, kScores = kSlots / 8;
  auto* tiles = reinterpret_cast<HalfTile<kDim>*>(SharedMemory());
  const HeadSlots& head = heads.head[BlockIdxY()];
  const int g = Lane() / 4, t = Lane() % 4;
  const int n_all = (call.row_end - call.row_begin) * call.group;
  const int query0 = BlockIdxZ() * kQueries;
  const int first_head = (call.kv_begin + BlockIdxY()) * call.group;
  const auto row_of = [&](int query) { return call.row_begin + (query < n_all ? query : n_all - 1) / call.group; };

  const int begin = FirstOf(head, row_of(query0)), end = LastOf(call, head, row_of(query0 + kQueries - 1)) + 1;
  const int n_tiles = (end - begin + kSlots - 1) / kSlots;
  const int from = begin + BlockIdx() * n_tiles / call.n_splits * kSlots;
  const int beyond = begin + (BlockIdx() + 1) * n_tiles / call.n_splits * kSlots, to = beyond < end ? beyond : end;
  const auto copy = [&](int idx, HalfTile<kDim>& tile) {
    CopyTile<kDim>(head, idx, to - idx < kSlots ? to - idx : kSlots, call.out != nullptr, tile);
  };
  if (from < to) copy(from, tiles[0]);

  // A lane has parts of two queries: g and g + 8 of its warp's. Missing queries are copies of the last one and are not
  // written.
  const int warp_query = query0 + WarpIdx() * kQueriesOfWarp;
  int query[2], first[2], last[2];
  int64_t vector[2];
  WEIR_UNROLL
  for (int j = 0; j < 2; ++j) {
    query[j] = warp_query + g + 8 * j;
    const int known = query[j] < n_all ? query[j] : n_all - 1, row = row_of(known);
    vector[j] = static_cast<int64_t>(row) * call.n_heads + first_head + known % call.group;
    first[j] = FirstOf(head, row);
    last[j] = LastOf(call, head, row);
  }
  // Tiles within these are seen by all of the warp's queries.
  const int all_first = FirstOf(head, row_of(warp_query + kQueriesOfWarp - 1));
  const int all_last = LastOf(call, head, row_of(warp_query));
  uint32_t q[kSteps][4];
  WEIR_UNROLL
  for (int step = 0; step < kSteps; ++step) {
    WEIR_UNROLL
    for (int j = 0; j < 4; ++j) {
      q[step][j] =
          *reinterpret_cast<const uint32_t*>(call.half_q + vector[j % 2] * kDim + step * 16 + j / 2 * 8 + 2 * t);
    }
  }
  float mix[kColumns][4], max[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
  WEIR_UNROLL
  for (int j = 0; j < 2 && call.sinks != nullptr && BlockIdx() == 0; ++j) {
    max[j] = call.sinks[vector[j] % call.n_heads];
    sum[j] = t == 0 ? 1.0f : 0.0f;  // the four lanes of a query add their sums at the end
  }
  WEIR_UNROLL
  for (int c = 0; c < kColumns; ++c) {
    WEIR_UNROLL
    for (int i = 0; i < 4; ++i) mix[c][i] = 0;
  }
  // Which row of four 8 x 8 matrices the lane loads: two columns of keys by two steps, two steps of values by two
  // columns.
  const int key_row = Lane() / 16 * 8 + Lane() % 8, key_column = Lane() / 8 % 2 * 8;
  const int value_row = Lane() % 16, value_column = Lane() / 16 * 8;

  for (int idx = from, turn = 0; idx < to; idx += kSlots, turn ^= 1) {
    const HalfTile<kDim>& tile = tiles[turn];
    WaitCopies<0>();
    Barrier();  // the tile is there, and nobody reads the one before it
    if (idx + kSlots < to) copy(idx + kSlots, tiles[turn ^ 1]);

    float z[kScores][4];
    WEIR_UNROLL
    for (int c = 0; c < kScores; ++c) {
      WEIR_UNROLL
      for (int i = 0; i < 4; ++i) z[c][i] = 0;
    }
    WEIR_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      WEIR_UNROLL
      for (int c = 0; c < kScores; c += 2) {
        uint32_t right[4];
        LoadMatrices(right, &tile.k[c * 8 + key_row][step * 16 + key_column]);
        MmaF16(z[c], q[step], right);
        MmaF16(z[c + 1], q[step], right + 2);
      }
    }
    if (call.softcap > 0) {
      WEIR_UNROLL
      for (int c = 0; c < kScores; ++c) {
        WEIR_UNROLL
        for (int i = 0; i < 4; ++i) z[c][i] = Capped(z[c][i], call.softcap);
      }
    }
    if (idx < all_first || idx + kSlots - 1 > all_last) {
      WEIR_UNROLL
      for (int c = 0; c < kScores; ++c) {
        WEIR_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int at = idx + c * 8 + 2 * t + i % 2;
          if (at < first[i / 2] || at > last[i / 2]) z[c][i] = -INFINITY;
        }
      }
    }
    float base[2];
    WEIR_UNROLL
    for (int j = 0; j < 2; ++j) {
      float now = max[j];
      WEIR_UNROLL
      for (int c = 0; c < kScores; ++c) now = fmaxf(now, fmaxf(z[c][2 * j], z[c][2 * j + 1]));
      // A query's scores are in the four lanes of its row.
      now = fmaxf(now, ShuffleXor(now, 1));
      now = fmaxf(now, ShuffleXor(now, 2));
      base[j] = now == -INFINITY ? 0.0f : now * kLog2OfE;
      const float factor = Exp2(max[j] * kLog2OfE - base[j]);
      max[j] = now;
      sum[j] *= factor;
      WEIR_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        mix[c][2 * j] *= factor;
        mix[c][2 * j + 1] *= factor;
      }
    }
    WEIR_UNROLL
    for (int c = 0; c < kScores; ++c) {
      WEIR_UNROLL
      for (int i = 0; i < 4; ++i) {
        z[c][i] = Exp2(fmaf(z[c][i], kLog2OfE, -base[i / 2]));
        sum[i / 2] += z[c][i];
      }
    }
    if (call.out == nullptr) continue;
    WEIR_UNROLL
    for (int step = 0; step < kSlots / 16; ++step) {
      // Two neighbouring results form one left operand.
      const uint32_t left[4] = {TwoHalves(z[2 * step][0], z[2 * step][1]), TwoHalves(z[2 * step][2], z[2 * step][3]),
                                TwoHalves(z[2 * step + 1][0], z[2 * step + 1][1]),
                                TwoHalves(z[2 * step + 1][2], z[2 * step + 1][3])};
      WEIR_UNROLL
      for (int c = 0; c < kColumns; c += 2) {
        uint32_t right[4];
        LoadTransposed(right, &tile.v[step * 16 + value_row][c * 8 + value_column]);
        MmaF16(mix[c], left, right);
        MmaF16(mix[c + 1], left, right + 2);
      }
    }
  }
  WEIR_UNROLL
  for (int j = 0; j < 2; ++j) {
    sum[j] += ShuffleXor(sum[j], 1);
    sum[j] += ShuffleXor(sum[j], 2);
    if (query[j] >= n_all) continue;
    const bool split = call.n_splits > 1;
    float* partial = PartialOf(call, BlockIdx(), row_of(query[j]), BlockIdxY() * call.group + query[j] % call.group);
    if (call.out != nullptr) {
      float* out = split ? partial : call.out + row_of(query[j]) * call.out_stride + vector[j] % call.n_heads * kDim;
      const float factor = split ? 1.0f : 1.0f / sum[j];
      WEIR_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        out[c * 8 + 2 * t] = mix[c][2 * j] * factor;
        out[c * 8 + 2 * t + 1] = mix[c][2 * j + 1] * factor;
      }
    }
    if (t != 0) continue;
    if (split) {
      partial[kDim] = max[j];
      partial[kDim + 1] = sum[j];
    } else {
      call.lse[vector[j]] = max[j] + logf(sum[j]);
    }
  }
}

}  // namespace

bool HasAttendMany(int64_t n_rows, int64_t group, int64_t dim) {
  return (dim == 64 || dim == 128) && n_rows * group >= kSlots;
}

SegmentHeads HalvesOf(Device& device, const AttentionCall& call, const SegmentHeads& heads,
                      const AttentionScratch& scratch) {
  Halves to;
  to.k = scratch.halves;
  to.stride = scratch.max_slots * call.dim;
  to.v = scratch.halves + call.n_kv * to.stride;
  bool aligned = true, listed = false;
  for (int32_t i = 0; i < call.n_kv; ++i) {
    const HeadSlots& head = heads.head[i];
    aligned = aligned && (reinterpret_cast<uintptr_t>(head.k) | reinterpret_cast<uintptr_t>(head.v)) % 16 == 0;
    listed = listed || head.selected != nullptr;
  }
  const bool plain = aligned && !listed;
  if (plain && call.k_type == DType::kF16 && call.keys.n_pairs == 0) to.k = nullptr;
  if (call.out == nullptr || (plain && call.v_type == DType::kF16)) to.v = nullptr;
  SegmentHeads out = heads;
  for (int32_t i = 0; i < call.n_kv; ++i) {
    if (to.k != nullptr) out.head[i].k = reinterpret_cast<const uint8_t*>(to.k + i * to.stride);
    if (to.v != nullptr) out.head[i].v = reinterpret_cast<const uint8_t*>(to.v + i * to.stride);
  }
  if (to.k == nullptr && to.v == nullptr) return out;
  const int64_t n = MostSlots(call, heads) * call.dim;
  if (aligned && call.keys.n_pairs % 8 == 0) {
    device.Launch(ConvertSlots<8>, Grid{Blocks(n / 8, kThreads), call.n_kv, 2}, kThreads, 0, call, heads, to);
  } else {
    device.Launch(ConvertSlots<1>, Grid{Blocks(n, kThreads), call.n_kv, 2}, kThreads, 0, call, heads, to);
  }
  return out;
}

void AttendManyRows(Device& device, AttentionCall call, const SegmentHeads& halves) {
  const int64_t tiles = Blocks(static_cast<int64_t>(call.row_end - call.row_begin) * call.group, kQueries);
  call.n_splits = Splits(call, tiles * call.n_kv, device.n_multiprocessors(), MostSlots(call, halves), 4 * kSlots);
  const Grid grid = {call.n_splits, call.n_kv, tiles};
  if (call.dim == 64) {
    device.Launch(AttendMany<64>, grid, kThreads, 2 * sizeof(HalfTile<64>), call, halves);
  } else {
    device.Launch(AttendMany<128>, grid, kThreads, 2 * sizeof(HalfTile<128>), call, halves);
  }
  Combine(device, call);
}

}  // namespace weir::WEIR_GPU
