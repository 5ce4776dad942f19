// SPDX-License-Identifier: Apache-2.0
// Attention of few queries in F32: a block has up to four queries of one KV head and copies slots as they are stored, a
// tile ahead, to shared memory. Every loaded, decoded and rotated key serves all of its queries.
//
// Keys of consecutive slots are rotated in two steps (ops/rope.h): slot s by R(s - s % kRopeTile) R(s % kRopeTile). A
// tile's slots share the first factor, by whose inverse the queries are rotated instead, once a tile.
#include <algorithm>
#include <bit>

#include "backend/cuda/attention.h"

namespace weir::WEIR_GPU {
namespace {

constexpr int kThreads = kAttentionThreads, kWarps = kThreads / kWarp;
constexpr int kTile = kWarp;  // slots, at most: a lane each where weights are made
static_assert(kTile == kRopeTile);
// For scores a warp has eight of a tile's slots, eight lanes four of them: lane l has slots l % 4 and l % 4 + 4.
constexpr int kParts = 8, kKeys = 2, kSlotsOfWarp = kTile / kWarps;
constexpr int kN = 8;  // elements of a thread's sum of values

// How slots are copied to shared memory: in units of 16, 8, 4 or 2 bytes, 2^log2_lanes threads a slot.
struct SlotCopy {
  int32_t bytes = 0, pitch = 0, unit = 0, log2_lanes = 0;
};
struct FewCall {
  SlotCopy k, v;
  int32_t tile = 0;      // slots copied at once
  bool aligned = false;  // elements are loaded eight at a time
  int32_t threads = 0;   // of a slot's values
  int32_t parts = 1;     // of a tile's slots whose values different threads add
};

// Shared memory: two tiles as stored, later the threads' sums; the queries as they are and rotated for a tile; a tile's
// scores and weights; the queries' statistics and the slots they see.
struct FewMemory {
  uint8_t* stage;
  float *own, *q, *z, *weights, *max, *sum, *factor;
  int32_t *first, *last;
};
WEIR_BOTH constexpr int StageBytes(const FewCall& few) { return few.tile * (few.k.pitch + few.v.pitch); }
WEIR_BOTH constexpr int StagesBytes(const FewCall& few, int queries, int dim) {
  const int sums = (4 * queries * few.parts * dim + 15) / 16 * 16;
  return 2 * StageBytes(few) > sums ? 2 * StageBytes(few) : sums;
}
constexpr int64_t FewBytes(const FewCall& few, int queries, int dim) {
  return StagesBytes(few, queries, dim) + 4 * queries * (2 * dim + 2 * kTile + 5);
}
template <int kQueries>
WEIR_DEVICE FewMemory FewMemoryOf(const FewCall& few, int dim) {
  FewMemory m;
  m.stage = SharedMemory();
  m.own = reinterpret_cast<float*>(m.stage + StagesBytes(few, kQueries, dim));
  m.q = m.own + kQueries * dim;
  m.z = m.q + kQueries * dim;
  m.weights = m.z + kQueries * kTile;
  m.max = m.weights + kQueries * kTile;
  m.sum = m.max + kQueries;
  m.factor = m.sum + kQueries;
  m.first = reinterpret_cast<int32_t*>(m.factor + kQueries);
  m.last = m.first + kQueries;
  return m;
}

template <int kUnit>
WEIR_DEVICE void CopyUnits(const SlotCopy& copy, const uint8_t* slots, const int32_t* selected, int64_t idx0, int n,
                           uint8_t* to) {
  const int lane = ThreadIdx() & ((1 << copy.log2_lanes) - 1);
  for (int s = ThreadIdx() >> copy.log2_lanes; s < n; s += kThreads >> copy.log2_lanes) {
    const int64_t slot = selected != nullptr ? selected[idx0 + s] : idx0 + s;
    const uint8_t* from = slots + slot * copy.bytes;
    uint8_t* row = to + s * copy.pitch;
    for (int at = lane * kUnit; at < copy.bytes; at += kUnit << copy.log2_lanes) {
      if constexpr (kUnit == 2) {
        *reinterpret_cast<uint16_t*>(row + at) = *reinterpret_cast<const uint16_t*>(from + at);
      } else {
        CopyAsync<kUnit>(row + at, from + at);
      }
    }
  }
}
WEIR_DEVICE void CopySlots(const SlotCopy& copy, const uint8_t* slots, const int32_t* selected, int64_t idx0, int n,
                           uint8_t* to) {
  if (copy.unit == 16) return CopyUnits<16>(copy, slots, selected, idx0, n, to);
  if (copy.unit == 8) return CopyUnits<8>(copy, slots, selected, idx0, n, to);
  if (copy.unit == 4) return CopyUnits<4>(copy, slots, selected, idx0, n, to);
  CopyUnits<2>(copy, slots, selected, idx0, n, to);
}

// Query j for the tile at `slot`: rotated back by the angles that its keys share.
WEIR_DEVICE void TurnQuery(const AttentionCall& call, int slot, const float* own, float* q) {
  const int n_pairs = call.keys.n_pairs, base = slot / kRopeTile * n_pairs;
  for (int p = Lane(); p < n_pairs; p += kWarp) {
    const float cosine = call.keys.base_cos[base + p] * call.keys.magnitude;
    const float sine = call.keys.base_sin[base + p] * call.keys.magnitude;
    q[p] = fmaf(own[p], cosine, own[p + n_pairs] * sine);
    q[p + n_pairs] = fmaf(own[p + n_pairs], cosine, -(own[p] * sine));
  }
}

// z[i][j] += the products of query j and the lane's part of key i, kLoad elements at a time. kWhole: queries are not
// turned, so keys are rotated all the way.
template <int kQueries, int kLoad, bool kWhole>
WEIR_DEVICE void AddScores(const AttentionCall& call, const uint8_t* const key[kKeys], const int slot[kKeys], int part,
                           const float* q, float z[kKeys][kQueries]) {
  const int n_pairs = call.keys.n_pairs;
  for (int p = part * kLoad; p < n_pairs; p += kParts * kLoad) {
    float x0[kKeys][kLoad], x1[kKeys][kLoad];
    WEIR_UNROLL
    for (int i = 0; i < kKeys; ++i) {
      if constexpr (kWhole) {
        RotatedPairs<kLoad>(call, key[i], slot[i], p, x0[i], x1[i]);
      } else {
        float cosine[kLoad], sine[kLoad];
        LoadFloats<kLoad>(call.keys.off_cos + slot[i] % kRopeTile * n_pairs + p, cosine);
        LoadFloats<kLoad>(call.keys.off_sin + slot[i] % kRopeTile * n_pairs + p, sine);
        SlotElements<kLoad>(call.k_type, key[i], p, x0[i]);
        SlotElements<kLoad>(call.k_type, key[i], p + n_pairs, x1[i]);
        RotatePairs<kLoad>(cosine, sine, x0[i], x1[i]);
      }
    }
    WEIR_UNROLL
    for (int j = 0; j < kQueries; ++j) {
      float y0[kLoad], y1[kLoad];
      LoadFloats<kLoad>(q + j * call.dim + p, y0);
      LoadFloats<kLoad>(q + j * call.dim + p + n_pairs, y1);
      WEIR_UNROLL
      for (int i = 0; i < kKeys; ++i) {
        WEIR_UNROLL
        for (int e = 0; e < kLoad; ++e) z[i][j] = fmaf(y1[e], x1[i][e], fmaf(y0[e], x0[i][e], z[i][j]));
      }
    }
  }
  for (int at = 2 * n_pairs + part * kLoad; at < call.dim; at += kParts * kLoad) {
    float x[kKeys][kLoad];
    WEIR_UNROLL
    for (int i = 0; i < kKeys; ++i) SlotElements<kLoad>(call.k_type, key[i], at, x[i]);
    WEIR_UNROLL
    for (int j = 0; j < kQueries; ++j) {
      float y[kLoad];
      LoadFloats<kLoad>(q + j * call.dim + at, y);
      WEIR_UNROLL
      for (int i = 0; i < kKeys; ++i) {
        WEIR_UNROLL
        for (int e = 0; e < kLoad; ++e) z[i][j] = fmaf(y[e], x[i][e], z[i][j]);
      }
    }
  }
}

// mix += weights * values, of every parts-th slot from `part` on. The thread has kN neighbouring elements, or, if loads
// are not aligned, elements kThreads apart.
template <int kQueries, DType kType>
WEIR_DEVICE void AddValues(const FewCall& few, const float* all_weights, const uint8_t* values, int dim, int part,
                           int mine, int n, float mix[kQueries][kN]) {
  for (int s = part; s < n; s += few.parts) {
    const uint8_t* value = values + s * few.v.pitch;
    float x[kN], weights[kQueries];
    if (few.aligned) {
      SlotElements<kN>(kType, value, mine * kN, x);
    } else {
      WEIR_UNROLL
      for (int i = 0; i < kN; ++i) {
        x[i] = mine + i * kThreads < dim ? SlotElement(kType, value, mine + i * kThreads) : 0.0f;
      }
    }
    LoadFloats<kQueries>(all_weights + s * kQueries, weights);
    WEIR_UNROLL
    for (int j = 0; j < kQueries; ++j) {
      WEIR_UNROLL
      for (int i = 0; i < kN; ++i) mix[j][i] = fmaf(weights[j], x[i], mix[j][i]);
    }
  }
}

// Block (split, KV head, tile of queries).
template <int kQueries>
WEIR_KERNEL WEIR_SHARING(kThreads, (kQueries == 1 ? 4 : 3)) void AttendFew(AttentionCall call, SegmentHeads heads,
                                                                           FewCall few) {
  const HeadSlots& head = heads.head[BlockIdxY()];
  const int stage_bytes = StageBytes(few), dim = call.dim;
  const FewMemory m = FewMemoryOf<kQueries>(few, dim);
  const int query0 = BlockIdxZ() * kQueries, n_all = (call.row_end - call.row_begin) * call.group;
  const int n_queries = n_all - query0 < kQueries ? n_all - query0 : kQueries;
  const int first_row = call.row_begin + query0 / call.group;
  const int last_row = call.row_begin + (query0 + n_queries - 1) / call.group;
  const int first_head = (call.kv_begin + BlockIdxY()) * call.group;

  // This split's part of the slots that any of the rows sees. Tiles begin where the tiles of angles do.
  const bool listed = head.selected != nullptr;
  const int begin = listed ? 0 : FirstSlot(head, first_row) / kRopeTile * kRopeTile;
  const int end = listed ? head.n_selected : LastSlot(call, head, last_row) + 1;
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
    m.own[at] = m.q[at] = query < n_all ? call.q[(row * call.n_heads + h) * dim + at % dim] : 0.0f;
  }
  // A sink is one more score, without a value, of the first split.
  const bool has_sink = call.sinks != nullptr && BlockIdx() == 0;
  if (const int j = ThreadIdx(); j < kQueries) {
    const int row = call.row_begin + (query0 + j) / call.group;
    m.max[j] = has_sink ? call.sinks[first_head + (query0 + j) % call.group] : -INFINITY;
    m.sum[j] = has_sink ? 1.0f : 0.0f;
    m.first[j] = j < n_queries ? FirstSlot(head, row) : 0;
    m.last[j] = j < n_queries ? LastSlot(call, head, row) : -1;
  }
  const int key0 = WarpIdx() * kSlotsOfWarp + Lane() % (kSlotsOfWarp / kKeys), part = Lane() / (kSlotsOfWarp / kKeys);
  const int value_part = ThreadIdx() / few.threads, mine = ThreadIdx() % few.threads;
  float mix[kQueries][kN];
  WEIR_UNROLL
  for (int i = 0; i < kQueries * kN; ++i) mix[i / kN][i % kN] = 0;
  if (!listed && from < to) {
    Barrier();
    for (int j = WarpIdx(); j < kQueries; j += kWarps) TurnQuery(call, from, m.own + j * dim, m.q + j * dim);
  }

  for (int idx = from, turn = 0; idx < to; idx += few.tile, turn ^= 1) {
    const int n = to - idx < few.tile ? to - idx : few.tile;
    const uint8_t* stage = m.stage + turn * stage_bytes;
    WaitCopies<0>();
    Barrier();  // the tile is there, and nobody reads the one before it
    if (idx + few.tile < to) copy(idx + few.tile, m.stage + (turn ^ 1) * stage_bytes);

    float z[kKeys][kQueries];
    WEIR_UNROLL
    for (int i = 0; i < kKeys * kQueries; ++i) z[i / kQueries][i % kQueries] = 0;
    if (key0 < n) {
      const uint8_t* key[kKeys];
      int slot[kKeys];
      WEIR_UNROLL
      for (int i = 0; i < kKeys; ++i) {
        // A slot beyond the tile is a copy of one in it; nobody looks at its score.
        const int at = key0 + i * (kSlotsOfWarp / kKeys), s = at < n ? at : key0;
        key[i] = stage + s * few.k.pitch;
        slot[i] = listed ? head.selected[idx + s] : idx + s;
      }
      if (few.aligned) {
        if (listed) {
          AddScores<kQueries, 8, true>(call, key, slot, part, m.q, z);
        } else {
          AddScores<kQueries, 8, false>(call, key, slot, part, m.q, z);
        }
      } else if (listed) {
        AddScores<kQueries, 1, true>(call, key, slot, part, m.q, z);
      } else {
        AddScores<kQueries, 1, false>(call, key, slot, part, m.q, z);
      }
    }
    WEIR_UNROLL
    for (int i = 0; i < kKeys; ++i) {
      WEIR_UNROLL
      for (int j = 0; j < kQueries; ++j) {
        for (int step = kSlotsOfWarp / kKeys; step < kWarp; step *= 2) z[i][j] += ShuffleXor(z[i][j], step);
        if (part == i * kQueries + j) m.z[j * kTile + key0 + i * (kSlotsOfWarp / kKeys)] = z[i][j];
      }
    }
    Barrier();

    const int slot = Lane() >= n ? 0 : listed ? head.selected[idx + Lane()] : idx + Lane();
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
      if (!listed && idx + few.tile < to) TurnQuery(call, idx + few.tile, m.own + j * dim, m.q + j * dim);
    }
    Barrier();
    if (call.out == nullptr || value_part >= few.parts) continue;
    WEIR_UNROLL
    for (int j = 0; j < kQueries; ++j) {
      const float factor = m.factor[j];
      WEIR_UNROLL
      for (int i = 0; i < kN; ++i) mix[j][i] *= factor;
    }
    const uint8_t* values = stage + few.tile * few.k.pitch;
    if (call.v_type == DType::kF16) {
      AddValues<kQueries, DType::kF16>(few, m.weights, values, dim, value_part, mine, n, mix);
    } else if (call.v_type == DType::kQ8_0) {
      AddValues<kQueries, DType::kQ8_0>(few, m.weights, values, dim, value_part, mine, n, mix);
    } else {
      AddValues<kQueries, DType::kF32>(few, m.weights, values, dim, value_part, mine, n, mix);
    }
  }
  Barrier();
  auto* sums = reinterpret_cast<float*>(m.stage);  // [parts, queries, dim]
  WEIR_UNROLL
  for (int i = 0; i < kQueries * kN; ++i) {
    const int e = few.aligned ? mine * kN + i % kN : mine + i % kN * kThreads;
    if (value_part < few.parts && e < dim) sums[(value_part * kQueries + i / kN) * dim + e] = mix[i / kN][i % kN];
  }
  Barrier();
  for (int at = ThreadIdx(); at < n_queries * (dim + 2); at += kThreads) {
    const int j = at / (dim + 2), e = at % (dim + 2),
              head_of_call = BlockIdxY() * call.group + (query0 + j) % call.group;
    const int64_t row = call.row_begin + (query0 + j) / call.group, h = call.kv_begin * call.group + head_of_call;
    float sum = 0;
    for (int p = 0; p < few.parts && e < dim; ++p) sum += sums[(p * kQueries + j) * dim + e];
    if (call.n_splits > 1) {
      PartialOf(call, BlockIdx(), static_cast<int>(row), head_of_call)[e] = e < dim    ? sum
                                                                            : e == dim ? m.max[j]
                                                                                       : m.sum[j];
    } else if (e < dim) {
      if (call.out != nullptr) call.out[row * call.out_stride + h * dim + e] = sum / m.sum[j];
    } else if (e == dim) {
      call.lse[row * call.n_heads + h] = m.max[j] + logf(m.sum[j]);
    }
  }
}

SlotCopy CopyOf(const AttentionCall& call, const SegmentHeads& heads, const uint8_t* HeadSlots::*array, int64_t bytes) {
  uint64_t bits = static_cast<uint64_t>(bytes) | 16;
  for (int32_t i = 0; i < call.n_kv; ++i) bits |= reinterpret_cast<uintptr_t>(heads.head[i].*array);
  SlotCopy out;
  out.bytes = static_cast<int32_t>(bytes);
  out.unit = 1 << std::countr_zero(bits);
  out.log2_lanes = std::min(5, static_cast<int>(std::bit_width(static_cast<uint32_t>(out.bytes / out.unit))) - 1);
  // An odd number of 32 bytes: 32 bytes of four neighbouring slots then lie in different banks.
  out.pitch = (out.bytes + 31) / 32 * 32;
  if (out.pitch % 64 == 0) out.pitch += 32;
  return out;
}

constexpr int64_t kMostShared = 72 << 10;  // of a block: three share a multiprocessor

template <int kQueries>
void Run(Device& device, AttentionCall call, const SegmentHeads& heads, FewCall few) {
  for (few.tile = kTile; few.tile > 1 && FewBytes(few, kQueries, call.dim) > kMostShared;) few.tile /= 2;
  const int64_t tiles = Blocks(static_cast<int64_t>(call.row_end - call.row_begin) * call.group, kQueries);
  constexpr int kBlocks = kQueries == 1 ? 4 : 3;  // that registers allow on a multiprocessor
  call.n_splits = Splits(call, tiles * call.n_kv, int64_t{kBlocks} * device.n_multiprocessors(), MostSlots(call, heads),
                         2 * few.tile);
  device.Launch(AttendFew<kQueries>, Grid{call.n_splits, call.n_kv, tiles}, kThreads, FewBytes(few, kQueries, call.dim),
                call, heads, few);
  Combine(device, call);
}

}  // namespace

void AttendFewRows(Device& device, AttentionCall call, const SegmentHeads& heads) {
  FewCall few;
  few.k = CopyOf(call, heads, &HeadSlots::k, call.k_slot_bytes);
  if (call.out != nullptr) few.v = CopyOf(call, heads, &HeadSlots::v, call.v_slot_bytes);
  few.aligned = call.keys.n_pairs % kN == 0 && call.dim % kN == 0;
  few.threads = few.aligned ? call.dim / kN : std::min(call.dim, kThreads);
  few.parts = kThreads / few.threads;
  const bool one = (call.row_end - call.row_begin) * call.group == 1;
  one ? Run<1>(device, call, heads, few) : Run<4>(device, call, heads, few);
}

}  // namespace weir::WEIR_GPU
