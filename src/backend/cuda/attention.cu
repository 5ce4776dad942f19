// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/attention.h"

#include <algorithm>

#include "base/workspace.h"
#include "ops/kv_slots.h"

namespace weir::WEIR_GPU {
namespace {

constexpr int kQueries = 16;  // of a block: rows times query heads of one KV head
constexpr int kRoundsOfWarps = kQueries / (kAttentionThreads / kWarp);

// Rotates and scales the queries of KV heads [kv_begin, kv_begin + the grid's height). Block (row of the segment, KV
// head).
struct QueryCall {
  const float* q = nullptr;
  int64_t q_stride = 0;
  float* to = nullptr;             // the segment's rows of scratch
  const float* row_cos = nullptr;  // rows of the segment; nullptr: the positions are slots
  const float* row_sin = nullptr;
  Angles angles;
  int32_t n_rows = 0, n_heads = 0, group = 0, dim = 0, kv_begin = 0;
  float scale = 1;
};

WEIR_KERNEL void PrepareQueries(QueryCall call, SegmentHeads heads) {
  const int64_t i = BlockIdx();
  const int n_pairs = call.angles.n_pairs, kv = BlockIdxY();
  for (int at = ThreadIdx(); at < call.group * call.dim; at += NumThreads()) {
    const int e = at % call.dim;
    const int64_t from = static_cast<int64_t>(call.kv_begin + kv) * call.group * call.dim + at;
    const float* vector = call.q + i * call.q_stride + from - e;
    float value = vector[e];
    if (e < 2 * n_pairs) {
      const int p = e < n_pairs ? e : e - n_pairs;
      float c, s;
      if (call.row_cos != nullptr) {
        c = call.row_cos[i * n_pairs + p] * call.angles.magnitude;
        s = call.row_sin[i * n_pairs + p] * call.angles.magnitude;
      } else {
        AngleAt(call.angles, heads.head[kv].n_slots - call.n_rows + i, p, &c, &s);
      }
      value = e < n_pairs ? vector[p] * c - vector[p + n_pairs] * s : vector[p + n_pairs] * c + vector[p] * s;
    }
    call.to[i * call.n_heads * call.dim + from] = value * call.scale;
  }
}

// Shared memory: a tile of keys or values, the block's queries, their running output, the tile's weights, their
// statistics.
struct TileMemory {
  float *tile, *q, *mix, *weights, *max, *sum, *factor;
  int pitch;
};

WEIR_DEVICE TileMemory TileMemoryOf(const AttentionCall& call) {
  TileMemory m;
  m.pitch = call.dim + 1;
  m.tile = reinterpret_cast<float*>(SharedMemory());
  m.q = m.tile + call.tile * m.pitch;
  m.mix = m.q + kQueries * call.dim;
  m.weights = m.mix + kQueries * call.dim;
  m.max = m.weights + kQueries * kTileSlots;
  m.sum = m.max + kQueries;
  m.factor = m.sum + kQueries;
  return m;
}

int64_t TileMemoryBytes(int64_t tile, int64_t dim) {
  return 4 * (tile * (dim + 1) + 2 * kQueries * dim + kQueries * kTileSlots + 3 * kQueries);
}

// Scores of the tile's slots, the running maximum and sum, and the factor for earlier sums.
WEIR_DEVICE void WeighTile(const AttentionCall& call, const HeadSlots& head, const TileMemory& m, int64_t query0,
                           int n_queries, int64_t idx0, int n) {
  const int w = WarpIdx(), warps = NumWarps(), lane = Lane();
  float z[kRoundsOfWarps];
  WEIR_UNROLL
  for (int j = 0; j < kRoundsOfWarps; ++j) z[j] = 0;
  if (lane < n && w < n_queries) {
    const float* key = m.tile + lane * m.pitch;
    for (int e = 0; e < call.dim; ++e) {
      const float x = key[e];
      WEIR_UNROLL
      for (int j = 0; j < kRoundsOfWarps; ++j) z[j] = fmaf(m.q[(w + j * warps) * call.dim + e], x, z[j]);
    }
  }
  const int64_t slot = lane >= n ? 0 : head.selected != nullptr ? head.selected[idx0 + lane] : idx0 + lane;
  WEIR_UNROLL
  for (int j = 0; j < kRoundsOfWarps; ++j) {
    const int q = w + j * warps;
    const int64_t i = call.row_begin + (query0 + q) / call.group;
    const bool seen = lane < n && q < n_queries && slot <= LastSlot(call, head, i) && slot >= FirstSlot(head, i);
    const float score = seen ? Capped(z[j], call.softcap) : -INFINITY;
    const float old = m.max[q], max = fmaxf(old, WarpMax(score));
    const float weight = seen ? expf(score - max) : 0.0f;
    const float sum = WarpSum(weight);
    m.weights[q * kTileSlots + lane] = weight;
    const float factor = old == -INFINITY ? 0.0f : expf(old - max);
    WarpBarrier();  // every lane has read the old maximum
    if (lane == 0) {
      m.factor[q] = factor;
      m.sum[q] = fmaf(m.sum[q], factor, sum);
      m.max[q] = max;
    }
  }
}

// mix = mix * factor + weights * values.
WEIR_DEVICE void AddValues(const AttentionCall& call, const TileMemory& m, int n_queries, int n) {
  for (int d = ThreadIdx(); d < call.dim; d += NumThreads()) {
    float sum[kQueries];
    WEIR_UNROLL
    for (int q = 0; q < kQueries; ++q) sum[q] = 0;
    for (int s = 0; s < n; ++s) {
      const float value = m.tile[s * m.pitch + d];
      WEIR_UNROLL
      for (int q = 0; q < kQueries; ++q) {
        if (q < n_queries) sum[q] = fmaf(m.weights[q * kTileSlots + s], value, sum[q]);
      }
    }
    WEIR_UNROLL
    for (int q = 0; q < kQueries; ++q) {
      if (q < n_queries) m.mix[q * call.dim + d] = fmaf(m.mix[q * call.dim + d], m.factor[q], sum[q]);
    }
  }
}

// Block (split, KV head, tile of queries).
WEIR_KERNEL void AttendTile(AttentionCall call, SegmentHeads heads) {
  const HeadSlots& head = heads.head[BlockIdxY()];
  const TileMemory m = TileMemoryOf(call);
  const int64_t query0 = static_cast<int64_t>(BlockIdxZ()) * kQueries;
  const int64_t n_all = static_cast<int64_t>(call.row_end - call.row_begin) * call.group;
  const int n_queries = static_cast<int>(n_all - query0 < kQueries ? n_all - query0 : kQueries);
  const int64_t first_row = call.row_begin + query0 / call.group;
  const int64_t last_row = call.row_begin + (query0 + n_queries - 1) / call.group;
  const int first_head = (call.kv_begin + BlockIdxY()) * call.group;

  for (int at = ThreadIdx(); at < kQueries * call.dim; at += NumThreads()) {
    const int64_t query = query0 + at / call.dim;
    const int64_t row = call.row_begin + query / call.group, h = first_head + query % call.group;
    m.q[at] = query < n_all ? call.q[(row * call.n_heads + h) * call.dim + at % call.dim] : 0.0f;
    m.mix[at] = 0;
  }
  // A sink is one more score, without a value, of the first split.
  const bool has_sink = call.sinks != nullptr && BlockIdx() == 0;
  for (int q = ThreadIdx(); q < kQueries; q += NumThreads()) {
    m.max[q] = has_sink ? call.sinks[first_head + (query0 + q) % call.group] : -INFINITY;
    m.sum[q] = has_sink ? 1.0f : 0.0f;
  }
  // This split's part of the slots that any of the rows sees.
  const int64_t begin = head.selected != nullptr ? 0 : FirstSlot(head, first_row);
  const int64_t end = head.selected != nullptr ? head.n_selected : LastSlot(call, head, last_row) + 1;
  const int64_t n_tiles = (end - begin + call.tile - 1) / call.tile;
  const int64_t per_split = (n_tiles + call.n_splits - 1) / call.n_splits * call.tile;
  const int64_t from = begin + BlockIdx() * per_split;
  const int64_t to = from + per_split < end ? from + per_split : end;
  for (int64_t idx = from; idx < to; idx += call.tile) {
    const int n = static_cast<int>(to - idx < call.tile ? to - idx : call.tile);
    Barrier();
    LoadKeys(call, head, idx, n, m.tile, m.pitch);
    Barrier();
    WeighTile(call, head, m, query0, n_queries, idx, n);
    if (call.out == nullptr) continue;
    Barrier();
    for (int i = ThreadIdx(); i < n * call.dim; i += NumThreads()) {
      const int s = i / call.dim, e = i % call.dim;
      const int64_t slot = head.selected != nullptr ? head.selected[idx + s] : idx + s;
      m.tile[s * m.pitch + e] = SlotElement(call.v_type, head.v + slot * call.v_slot_bytes, e);
    }
    Barrier();
    AddValues(call, m, n_queries, n);
  }
  Barrier();
  for (int at = ThreadIdx(); at < n_queries * (call.dim + 2); at += NumThreads()) {
    const int q = at / (call.dim + 2), e = at % (call.dim + 2);
    const int64_t row = call.row_begin + (query0 + q) / call.group, h = first_head + (query0 + q) % call.group;
    const int64_t vector = row * call.n_heads + h;
    if (call.n_splits > 1) {
      float* to_partial =
          call.partial + (BlockIdx() * static_cast<int64_t>(call.n_rows) * call.n_heads + vector) * (call.dim + 2);
      to_partial[e] = e < call.dim ? m.mix[q * call.dim + e] : e == call.dim ? m.max[q] : m.sum[q];
    } else if (e < call.dim) {
      if (call.out != nullptr) call.out[row * call.out_stride + h * call.dim + e] = m.mix[q * call.dim + e] / m.sum[q];
    } else if (e == call.dim) {
      call.lse[vector] = m.max[q] + logf(m.sum[q]);
    }
  }
}

// Block (row, query head): combines the splits.
WEIR_KERNEL void CombineSplits(AttentionCall call, int32_t first_head) {
  const int64_t row = call.row_begin + BlockIdx(), h = first_head + BlockIdxY();
  const int64_t vector = row * call.n_heads + h,
                stride = static_cast<int64_t>(call.n_rows) * call.n_heads * (call.dim + 2);
  const float* partial = call.partial + vector * (call.dim + 2);
  float max = -INFINITY, sum = 0;
  for (int s = 0; s < call.n_splits; ++s) max = fmaxf(max, partial[s * stride + call.dim]);
  for (int s = 0; s < call.n_splits; ++s) {
    sum = fmaf(partial[s * stride + call.dim + 1], expf(partial[s * stride + call.dim] - max), sum);
  }
  for (int e = ThreadIdx(); e < call.dim && call.out != nullptr; e += NumThreads()) {
    float mix = 0;
    for (int s = 0; s < call.n_splits; ++s) {
      mix = fmaf(partial[s * stride + e], expf(partial[s * stride + call.dim] - max), mix);
    }
    call.out[row * call.out_stride + h * call.dim + e] = mix / sum;
  }
  if (ThreadIdx() == 0) call.lse[vector] = max + logf(sum);
}

constexpr int64_t kMaxSplits = 64;

// Enough blocks for every multiprocessor, as far as there are enough slots and memory for partial results.
int32_t Splits(const Device& device, int64_t n_blocks, int64_t n_vectors, int64_t n_slots) {
  const int64_t wanted = Blocks(4 * device.n_multiprocessors(), n_blocks);
  const int64_t most =
      std::min({kMaxSplits, AttentionScratch::kPartialRows / n_vectors, Blocks(n_slots, 2 * kTileSlots)});
  return static_cast<int32_t>(std::max<int64_t>(1, std::min(wanted, most)));
}

}  // namespace

int64_t RowsOf(const AttentionArgs& args) {
  int64_t n = 0;
  for (const AttentionSegment& segment : args.segments) n = std::max(n, segment.first_row + segment.n_rows);
  return n;
}

AttentionScratch ScratchOf(const AttentionArgs& args, int64_t n_rows) {
  Workspace space(static_cast<uint8_t*>(args.scratch));
  AttentionScratch out;
  out.partial = space.Floats(AttentionScratch::kPartialRows * (args.head_dim + 2));
  out.q = space.Floats(n_rows * args.n_heads * args.head_dim);
  out.lse = space.Floats(n_rows * args.n_heads);
  out.heads = space.Floats(0);  // to the end
  return out;
}

int64_t AttentionScratchBytes(const AttentionShape& shape) {
  Workspace space(nullptr);
  space.Floats(AttentionScratch::kPartialRows * (shape.head_dim + 2));
  space.Floats(shape.max_rows * shape.n_heads * shape.head_dim);
  space.Floats(shape.max_rows * shape.n_heads);
  space.Floats(shape.n_kv_heads * shape.max_slots);
  return space.used();
}

SegmentHeads HeadsOf(Device& device, const AttentionArgs& args, const AttentionSegment& segment, int64_t kv_begin,
                     int64_t n) {
  SegmentHeads out;
  // Heads of a layer may share a list of slots: it is staged once.
  const auto is_new = [&](int64_t kv) {
    return kv == kv_begin || segment.selected[kv] != segment.selected[kv - 1] ||
           segment.n_selected[kv] != segment.n_selected[kv - 1];
  };
  int64_t list_bytes = 0;
  for (int64_t kv = kv_begin; kv < kv_begin + n; ++kv) {
    if (segment.first_slot != nullptr) list_bytes += Device::StagedBytes(segment.n_rows * 4);
    if (segment.selected != nullptr && is_new(kv))
      list_bytes += Device::StagedBytes(int64_t{segment.n_selected[kv]} * 4);
  }
  device.MakeStageRoom(list_bytes);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t kv = kv_begin + i;
    HeadSlots& head = out.head[i];
    head.k = device.Mine(segment.k[kv]);
    head.v = segment.v != nullptr ? device.Mine(segment.v[kv]) : nullptr;
    head.n_slots = segment.n_slots[kv];
    if (segment.first_slot != nullptr) head.first = device.Stage(segment.first_slot[kv], segment.n_rows);
    if (segment.selected != nullptr) {
      head.n_selected = segment.n_selected[kv];
      head.selected = is_new(kv) ? device.Stage(segment.selected[kv], head.n_selected) : out.head[i - 1].selected;
    }
  }
  return out;
}

AttentionCall CallOf(const AttentionArgs& args, const AttentionSegment& segment, const AttentionScratch& scratch) {
  AttentionCall call;
  call.q = scratch.q + segment.first_row * args.n_heads * args.head_dim;
  call.lse = scratch.lse + segment.first_row * args.n_heads;
  call.out = args.out != nullptr ? args.out + segment.first_row * args.out_stride : nullptr;
  call.out_stride = args.out_stride;
  call.partial = scratch.partial;
  call.n_rows = static_cast<int32_t>(segment.n_rows);
  call.n_heads = static_cast<int32_t>(args.n_heads);
  call.group = static_cast<int32_t>(args.n_heads / args.n_kv_heads);
  call.dim = static_cast<int32_t>(args.head_dim);
  call.row_end = call.n_rows;
  call.tile = args.head_dim > 256 ? kTileSlots / 2 : kTileSlots;
  call.k_type = args.k_type;
  call.v_type = args.v_type;
  call.k_slot_bytes = SlotBytes(args.k_type, args.head_dim);
  call.v_slot_bytes = SlotBytes(args.v_type, args.head_dim);
  call.softcap = args.softcap;
  call.sinks = args.sinks;
  if (!args.keys_rotated) call.keys = AnglesOf(args.rope);
  return call;
}

void Attend(Device& device, const AttentionArgs& args, const AttentionSegment& segment, const AttentionScratch& scratch,
            int64_t row_begin, int64_t row_end) {
  AttentionCall call = CallOf(args, segment, scratch);
  call.row_begin = static_cast<int32_t>(row_begin);
  call.row_end = static_cast<int32_t>(row_end);
  QueryCall query;
  query.q = args.q + segment.first_row * args.q_stride;
  query.q_stride = args.q_stride;
  query.to = scratch.q + segment.first_row * args.n_heads * args.head_dim;
  query.angles = AnglesOf(args.rope);
  if (args.keys_rotated && query.angles.n_pairs > 0) {
    query.row_cos = device.Mine(args.row_cos) + segment.first_row * query.angles.n_pairs;
    query.row_sin = device.Mine(args.row_sin) + segment.first_row * query.angles.n_pairs;
  }
  query.n_rows = call.n_rows;
  query.n_heads = call.n_heads;
  query.group = call.group;
  query.dim = call.dim;
  query.scale = args.scale;
  for (int64_t kv = 0; kv < args.n_kv_heads; kv += kHeadsALaunch) {
    const int64_t n = std::min<int64_t>(kHeadsALaunch, args.n_kv_heads - kv);
    const SegmentHeads heads = HeadsOf(device, args, segment, kv, n);
    query.kv_begin = call.kv_begin = static_cast<int32_t>(kv);
    // If positions are not slots, nothing here changes from token to token.
    device.Launch(PrepareQueries, Grid{segment.n_rows, n}, kAttentionThreads, 0, query,
                  query.row_cos == nullptr ? heads : SegmentHeads());
    if (HasAttendMany(call)) {
      AttendManyRows(device, call, heads, n);
      continue;
    }
    int64_t most = 0;
    for (int64_t i = 0; i < n; ++i) {
      most = std::max<int64_t>(most, segment.selected != nullptr ? heads.head[i].n_selected : heads.head[i].n_slots);
    }
    const int64_t tiles = Blocks((row_end - row_begin) * call.group, kQueries);
    call.n_splits = Splits(device, tiles * n, segment.n_rows * args.n_heads, most);
    device.Launch(AttendTile, Grid{call.n_splits, n, tiles}, kAttentionThreads, TileMemoryBytes(call.tile, call.dim),
                  call, heads);
    if (call.n_splits > 1) {
      device.Launch(CombineSplits, Grid{row_end - row_begin, n * call.group}, kAttentionThreads, 0, call,
                    static_cast<int32_t>(kv * call.group));
    }
  }
}

void Attention(Device& device, const AttentionArgs& args) {
  device.Mine(args.q), device.Mine(args.out), device.Mine(static_cast<uint8_t*>(args.scratch));
  const AttentionScratch scratch = ScratchOf(args, RowsOf(args));
  for (const AttentionSegment& segment : args.segments) Attend(device, args, segment, scratch, 0, segment.n_rows);
}

}  // namespace weir::WEIR_GPU
