// SPDX-License-Identifier: Apache-2.0
// Attention of few queries in F32, bound by how fast slots arrive: a block has up to eight queries of one KV head and
// copies slots as they are stored, a tile ahead, to shared memory. Every loaded, decoded and rotated key serves all of
// its queries.
#include <algorithm>
#include <bit>

#include "backend/cuda/attention.h"

namespace weir::WEIR_GPU {
namespace {

constexpr int kThreads = kAttentionThreads, kWarps = kThreads / kWarp;
constexpr int kTile = kWarp;                  // slots, at most
constexpr int kSlotsOfWarp = kTile / kWarps;  // of a tile: each has kParts lanes, neighbours have neighbouring slots
constexpr int kParts = kWarp / kSlotsOfWarp;

// How slots are copied to shared memory: in units of 16, 8, 4 or 2 bytes, 2^log2_lanes threads a slot.
struct SlotCopy {
  int32_t bytes = 0, pitch = 0, unit = 0, log2_lanes = 0;
};
struct FewCall {
  SlotCopy k, v;
  int32_t tile = 0;       // slots copied at once
  bool aligned = false;   // elements are processed eight at a time
  int32_t parts = 1;      // of a tile's slots whose values different threads add
  int32_t stage_bytes() const { return tile * (k.pitch + v.pitch); }
};

// Shared memory: two tiles as stored, the queries, their running outputs, a tile's scores and weights, the queries'
// statistics and the slots they see.
struct FewMemory {
  uint8_t* stage;
  float *q, *mix, *z, *weights, *max, *sum, *factor;
  int32_t *first, *last;
};
constexpr int64_t FewBytes(int64_t stage_bytes, int64_t queries, int64_t dim, int64_t parts) {
  return 2 * stage_bytes + 4 * queries * ((1 + parts) * dim + 2 * kTile + 5);
}
template <int kQueries>
WEIR_DEVICE FewMemory FewMemoryOf(int stage_bytes, int dim, int parts) {
  FewMemory m;
  m.stage = SharedMemory();
  m.q = reinterpret_cast<float*>(m.stage + 2 * stage_bytes);
  m.mix = m.q + kQueries * dim;
  m.z = m.mix + parts * kQueries * dim;
  m.weights = m.z + kQueries * kTile;
  m.max = m.weights + kQueries * kTile;
  m.sum = m.max + kQueries;
  m.factor = m.sum + kQueries;
  m.first = reinterpret_cast<int32_t*>(m.factor + kQueries);
  m.last = m.first + kQueries;
  return m;
}

WEIR_DEVICE void CopySlots(const SlotCopy& copy, const uint8_t* slots, const int32_t* selected, int64_t idx0, int n,
                           uint8_t* to) {
  const int lanes = 1 << copy.log2_lanes, lane = ThreadIdx() & (lanes - 1);
  for (int s = ThreadIdx() >> copy.log2_lanes; s < n; s += kThreads >> copy.log2_lanes) {
    const int64_t slot = selected != nullptr ? selected[idx0 + s] : idx0 + s;
    const uint8_t* from = slots + slot * copy.bytes;
    uint8_t* row = to + s * copy.pitch;
    for (int at = lane * copy.unit; at < copy.bytes; at += copy.unit << copy.log2_lanes) {
      if (copy.unit == 16) {
        CopyAsync<16>(row + at, from + at);
      } else if (copy.unit == 8) {
        CopyAsync<8>(row + at, from + at);
      } else if (copy.unit == 4) {
        CopyAsync<4>(row + at, from + at);
      } else {
        *reinterpret_cast<uint16_t*>(row + at) = *reinterpret_cast<const uint16_t*>(from + at);
      }
    }
  }
}

// z[j] += the products of query j and the lane's part of a key, kN elements at a time.
template <int kQueries, int kN>
WEIR_DEVICE void AddScores(const AttentionCall& call, const uint8_t* key, int slot, int part, const float* q,
                           float z[kQueries]) {
  const int n_pairs = call.keys.n_pairs;
  for (int p = part * kN; p < n_pairs; p += kParts * kN) {
    float x0[kN], x1[kN];
    RotatedPairs<kN>(call, key, slot, p, x0, x1);
    WEIR_UNROLL
    for (int j = 0; j < kQueries; ++j) {
      float y0[kN], y1[kN];
      LoadFloats<kN>(q + j * call.dim + p, y0);
      LoadFloats<kN>(q + j * call.dim + p + n_pairs, y1);
      WEIR_UNROLL
      for (int i = 0; i < kN; ++i) z[j] = fmaf(y1[i], x1[i], fmaf(y0[i], x0[i], z[j]));
    }
  }
  for (int e = 2 * n_pairs + part * kN; e < call.dim; e += kParts * kN) {
    float x[kN];
    SlotElements<kN>(call.k_type, key, e, x);
    WEIR_UNROLL
    for (int j = 0; j < kQueries; ++j) {
      float y[kN];
      LoadFloats<kN>(q + j * call.dim + e, y);
      WEIR_UNROLL
      for (int i = 0; i < kN; ++i) z[j] = fmaf(y[i], x[i], z[j]);
    }
  }
}

// mix = mix * factor + weights * values, of every parts-th slot from `part` on.
template <int kQueries, DType kType>
WEIR_DEVICE void AddValues(const FewCall& few, const FewMemory& m, const uint8_t* values, int dim, int part, int d,
                           int n) {
  for (; d < dim; d += kThreads) {
    float sum[kQueries];
    WEIR_UNROLL
    for (int j = 0; j < kQueries; ++j) sum[j] = 0;
    WEIR_UNROLL_BY_4
    for (int s = part; s < n; s += few.parts) {
      const float value = SlotElement(kType, values + s * few.v.pitch, d);
      float weights[kQueries];
      LoadFloats<kQueries>(m.weights + s * kQueries, weights);
      WEIR_UNROLL
      for (int j = 0; j < kQueries; ++j) sum[j] = fmaf(weights[j], value, sum[j]);
    }
    WEIR_UNROLL
    for (int j = 0; j < kQueries; ++j) {
      float* mix = m.mix + (part * kQueries + j) * dim + d;
      *mix = fmaf(*mix, m.factor[j], sum[j]);
    }
  }
}

// Block (split, KV head, tile of queries).
template <int kQueries>
WEIR_KERNEL void AttendFew(AttentionCall call, SegmentHeads heads, FewCall few) {
  const HeadSlots& head = heads.head[BlockIdxY()];
  const int stage_bytes = few.tile * (few.k.pitch + few.v.pitch), dim = call.dim;
  const FewMemory m = FewMemoryOf<kQueries>(stage_bytes, dim, few.parts);
  const int query0 = BlockIdxZ() * kQueries, n_all = (call.row_end - call.row_begin) * call.group;
  const int n_queries = n_all - query0 < kQueries ? n_all - query0 : kQueries;
  const int first_row = call.row_begin + query0 / call.group;
  const int last_row = call.row_begin + (query0 + n_queries - 1) / call.group;
  const int first_head = (call.kv_begin + BlockIdxY()) * call.group;

  // This split's part of the slots that any of the rows sees.
  const int begin = head.selected != nullptr ? 0 : FirstSlot(head, first_row);
  const int end = head.selected != nullptr ? head.n_selected : LastSlot(call, head, last_row) + 1;
  const int n_tiles = (end - begin + few.tile - 1) / few.tile;
  const int from = begin + BlockIdx() * n_tiles / call.n_splits * few.tile;
  const int beyond = begin + (BlockIdx() + 1) * n_tiles / call.n_splits * few.tile, to = beyond < end ? beyond : end;
  const auto copy = [&](int idx, uint8_t* stage) {
    const int n = to - idx < few.tile ? to - idx : few.tile;
    CopySlots(few.k, head.k, head.selected, idx, n, stage);
    if (call.out != nullptr) CopySlots(few.v, head.v, head.selected, idx, n, stage + few.tile * few.k.pitch);
    CommitCopies();
  };
  if (from < to) copy(from, m.stage);

  for (int at = ThreadIdx(); at < kQueries * dim; at += kThreads) {
    const int query = query0 + at / dim;
    const int64_t row = call.row_begin + query / call.group, h = first_head + query % call.group;
    m.q[at] = query < n_all ? call.q[(row * call.n_heads + h) * dim + at % dim] : 0.0f;
  }
  for (int at = ThreadIdx(); at < few.parts * kQueries * dim; at += kThreads) m.mix[at] = 0;
  // A sink is one more score, without a value, of the first split.
  const bool has_sink = call.sinks != nullptr && BlockIdx() == 0;
  if (const int j = ThreadIdx(); j < kQueries) {
    const int row = call.row_begin + (query0 + j) / call.group;
    m.max[j] = has_sink ? call.sinks[first_head + (query0 + j) % call.group] : -INFINITY;
    m.sum[j] = has_sink ? 1.0f : 0.0f;
    m.first[j] = j < n_queries ? FirstSlot(head, row) : 0;
    m.last[j] = j < n_queries ? LastSlot(call, head, row) : -1;
  }
  const int mine = WarpIdx() * kSlotsOfWarp + Lane() % kSlotsOfWarp, part = Lane() / kSlotsOfWarp;
  const int value_part = few.parts > 1 ? ThreadIdx() / dim : 0;
  const int value_dim = value_part < few.parts ? ThreadIdx() - value_part * dim : dim;

  for (int idx = from, turn = 0; idx < to; idx += few.tile, turn ^= 1) {
    const int n = to - idx < few.tile ? to - idx : few.tile;
    const uint8_t* stage = m.stage + turn * stage_bytes;
    WaitCopies<0>();
    Barrier();  // the tile is there, and nobody reads the one before it
    if (idx + few.tile < to) copy(idx + few.tile, m.stage + (turn ^ 1) * stage_bytes);

    float z[kQueries];
    WEIR_UNROLL
    for (int j = 0; j < kQueries; ++j) z[j] = 0;
    if (mine < n) {
      const int slot = head.selected != nullptr ? head.selected[idx + mine] : idx + mine;
      const uint8_t* key = stage + mine * few.k.pitch;
      if (few.aligned) {
        AddScores<kQueries, 8>(call, key, slot, part, m.q, z);
      } else {
        AddScores<kQueries, 1>(call, key, slot, part, m.q, z);
      }
    }
    WEIR_UNROLL
    for (int j = 0; j < kQueries; ++j) {
      z[j] += ShuffleXor(z[j], kSlotsOfWarp);
      z[j] += ShuffleXor(z[j], 2 * kSlotsOfWarp);
      if (part == j % kParts) m.z[j * kTile + mine] = z[j];
    }
    Barrier();

    const int slot = Lane() >= n ? 0 : head.selected != nullptr ? head.selected[idx + Lane()] : idx + Lane();
    for (int j = WarpIdx(); j < kQueries; j += kWarps) {
      const bool seen = Lane() < n && slot >= m.first[j] && slot <= m.last[j];
      const float score = seen ? Capped(m.z[j * kTile + Lane()], call.softcap) : -INFINITY;
      if (call.z != nullptr && seen) {
        const int64_t row = (query0 + j) / call.group, h = first_head + (query0 + j) % call.group;
        call.z[(row * call.n_heads + h) * call.z_stride + slot] = score;
      }
      const float old = m.max[j], max = fmaxf(old, WarpMax(score));
      const float weight = seen ? expf(score - max) : 0.0f;
      const float sum = WarpSum(weight);
      m.weights[Lane() * kQueries + j] = weight;
      WarpBarrier();  // every lane has read the old maximum
      if (Lane() == 0) {
        const float factor = old == -INFINITY ? 0.0f : expf(old - max);
        m.factor[j] = factor;
        m.sum[j] = fmaf(m.sum[j], factor, sum);
        m.max[j] = max;
      }
    }
    Barrier();
    if (call.out == nullptr) continue;
    const uint8_t* values = stage + few.tile * few.k.pitch;
    if (call.v_type == DType::kF16) {
      AddValues<kQueries, DType::kF16>(few, m, values, dim, value_part, value_dim, n);
    } else if (call.v_type == DType::kQ8_0) {
      AddValues<kQueries, DType::kQ8_0>(few, m, values, dim, value_part, value_dim, n);
    } else {
      AddValues<kQueries, DType::kF32>(few, m, values, dim, value_part, value_dim, n);
    }
  }
  Barrier();
  for (int at = ThreadIdx(); at < n_queries * (dim + 2); at += kThreads) {
    const int j = at / (dim + 2), e = at % (dim + 2);
    const int64_t row = call.row_begin + (query0 + j) / call.group, h = first_head + (query0 + j) % call.group;
    const int64_t vector = row * call.n_heads + h;
    float mix = 0;
    for (int p = 0; p < few.parts && e < dim; ++p) mix += m.mix[(p * kQueries + j) * dim + e];
    if (call.n_splits > 1) {
      float* partial =
          call.partial + (BlockIdx() * static_cast<int64_t>(call.n_rows) * call.n_heads + vector) * (dim + 2);
      partial[e] = e < dim ? mix : e == dim ? m.max[j] : m.sum[j];
    } else if (e < dim) {
      if (call.out != nullptr) call.out[row * call.out_stride + h * dim + e] = mix / m.sum[j];
    } else if (e == dim) {
      call.lse[vector] = m.max[j] + logf(m.sum[j]);
    }
  }
}

SlotCopy CopyOf(const SegmentHeads& heads, int64_t n_heads, const uint8_t* HeadSlots::*array, int64_t bytes) {
  uint64_t bits = static_cast<uint64_t>(bytes) | 16;
  for (int64_t i = 0; i < n_heads; ++i) bits |= reinterpret_cast<uintptr_t>(heads.head[i].*array);
  SlotCopy out;
  out.bytes = static_cast<int32_t>(bytes);
  out.unit = 1 << std::countr_zero(bits);
  out.log2_lanes = std::min(5, static_cast<int>(std::bit_width(static_cast<uint32_t>(out.bytes / out.unit))) - 1);
  // An odd number of 16 bytes: eight neighbouring slots then lie in different banks.
  out.pitch = (out.bytes + 15) / 16 * 16;
  if (out.pitch % 32 == 0) out.pitch += 16;
  return out;
}

constexpr int64_t kMostShared = 80 << 10;  // two blocks a multiprocessor

template <int kQueries>
void Run(Device& device, AttentionCall call, const SegmentHeads& heads, int64_t n_heads, FewCall few) {
  few.parts = call.dim < kThreads ? kThreads / call.dim : 1;
  const auto bytes = [&] { return FewBytes(few.stage_bytes(), kQueries, call.dim, few.parts); };
  for (few.tile = kTile; few.tile > 1 && bytes() > kMostShared;) few.tile /= 2;
  const int64_t n_queries = static_cast<int64_t>(call.row_end - call.row_begin) * call.group;
  const int64_t tiles = Blocks(n_queries, kQueries);
  int64_t most = 0;
  for (int64_t i = 0; i < n_heads; ++i) {
    const HeadSlots& head = heads.head[i];
    most = std::max<int64_t>(most, head.selected != nullptr ? head.n_selected : head.n_slots);
  }
  call.n_splits = Splits(call, tiles * n_heads, 4 * device.n_multiprocessors(), most, few.tile);
  device.Launch(AttendFew<kQueries>, Grid{call.n_splits, n_heads, tiles}, kThreads, bytes(), call, heads, few);
  Combine(device, call, n_heads);
}

}  // namespace

void AttendFewRows(Device& device, AttentionCall call, const SegmentHeads& heads, int64_t n_heads) {
  FewCall few;
  few.k = CopyOf(heads, n_heads, &HeadSlots::k, call.k_slot_bytes);
  if (call.out != nullptr) few.v = CopyOf(heads, n_heads, &HeadSlots::v, call.v_slot_bytes);
  few.aligned = call.keys.n_pairs % 8 == 0 && call.dim % 8 == 0;
  const int64_t n_queries = static_cast<int64_t>(call.row_end - call.row_begin) * call.group;
  if (n_queries == 1) return Run<1>(device, call, heads, n_heads, few);
  if (n_queries <= 4) return Run<4>(device, call, heads, n_heads, few);
  Run<8>(device, call, heads, n_heads, few);
}

}  // namespace weir::WEIR_GPU
