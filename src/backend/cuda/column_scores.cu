// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/attention.h"

namespace weir::WEIR_GPU {
namespace {

struct ScoreCall {
  RowReduce rows = RowReduce::kSum;
  HeadReduce heads = HeadReduce::kMean;
  bool accumulate = false;
  float weight = 1;
  int64_t max_slots = 0;           // row length of both arrays
  float* sums = nullptr;           // [n_heads, max_slots]: a head's, of rows so far
  float* apart = nullptr;          // [n_kv_heads, max_slots]: one KV head's, to be combined; nullptr: they go to `out`
  bool first = true, last = true;  // of the declared rows, some are in this call
};
struct ScoreOuts {
  float* out[kHeadsALaunch];
};

WEIR_DEVICE float Reduce(bool max, float a, float b) { return max ? fmaxf(a, b) : a + b; }

WEIR_DEVICE void Write(const ScoreCall& call, float value, int n_heads, float* out) {
  if (call.heads == HeadReduce::kMean) value = value / static_cast<float>(n_heads);
  value = value * call.weight;
  if (call.accumulate) value = Reduce(call.rows == RowReduce::kMax, value, *out);
  *out = value;
}

// Reduced over rows and over the heads of a KV head.
WEIR_DEVICE void Deliver(const AttentionCall& call, const ScoreCall& score, const ScoreOuts& outs, int64_t slot,
                         float total) {
  if (score.apart != nullptr) {
    score.apart[(call.kv_begin + BlockIdxY()) * score.max_slots + slot] = total;
  } else {
    Write(score, total, call.group, outs.out[BlockIdxY()] + slot);
  }
}

WEIR_DEVICE bool Sees(const AttentionCall& call, const HeadSlots& head, int row, int slot) {
  return slot <= LastSlot(call, head, row) && slot >= FirstSlot(head, row);
}

// Block (slots, KV head): each thread has a slot, of which few queries left their scores.
WEIR_KERNEL void ScoreFew(AttentionCall call, SegmentHeads heads, ScoreCall score, ScoreOuts outs) {
  const HeadSlots& head = heads.head[BlockIdxY()];
  const int slot = static_cast<int>(GlobalThread());
  if (slot >= head.n_slots) return;
  const bool max_rows = score.rows == RowReduce::kMax, max_heads = score.heads == HeadReduce::kMax;
  float total = 0;
  for (int g = 0; g < call.group; ++g) {
    const int h = (call.kv_begin + BlockIdxY()) * call.group + g;
    float* kept = score.sums + h * score.max_slots + slot;
    float of_head = score.first ? 0.0f : *kept;
    for (int row = call.row_begin; row < call.row_end; ++row) {
      if (!Sees(call, head, row, slot)) continue;
      const float z = call.z[(static_cast<int64_t>(row - call.row_begin) * call.n_heads + h) * call.z_stride + slot];
      of_head = Reduce(max_rows, of_head, expf(z - call.lse[static_cast<int64_t>(row) * call.n_heads + h]));
    }
    if (!score.last) *kept = of_head;
    total = Reduce(max_heads, total, of_head);
  }
  if (score.last) Deliver(call, score, outs, slot, total);
}

constexpr int kManyThreads = 256, kSlotsOfWarp = 16;
constexpr int kSlots = kManyThreads / kWarp * kSlotsOfWarp;
constexpr int kRows = 64;   // whose queries of one head are copied at once
constexpr int kAtOnce = 4;  // products that do not wait for each other

template <int kDim>
struct QueryTile {
  uint16_t q[kRows][kDim + 8];  // eight rows begin in different banks
};

// Rows beyond the declared ones are copies of the last.
template <int kDim>
WEIR_DEVICE void CopyQueries(const AttentionCall& call, int64_t h, int row0, QueryTile<kDim>& tile) {
  constexpr int kParts = kDim / 8;
  WEIR_UNROLL
  for (int i = 0; i < kRows * kParts / kManyThreads; ++i) {
    const int at = ThreadIdx() + i * kManyThreads, r = at / kParts, e = at % kParts * 8;
    const int64_t row = row0 + r < call.row_end ? row0 + r : call.row_end - 1;
    CopyAsync<16>(&tile.q[r][e], call.half_q + (row * call.n_heads + h) * kDim + e);
  }
  CommitCopies();
}

// Block (slots, KV head), over keys as halves: a warp has 16 slots, which meet the queries of the declared rows on the
// matrix units.
template <int kDim>
WEIR_KERNEL WEIR_SHARING(kManyThreads, 2) void ScoreMany(AttentionCall call, SegmentHeads heads, ScoreCall score,
                                                         ScoreOuts outs) {
  constexpr int kSteps = kDim / 16;
  auto* tiles = reinterpret_cast<QueryTile<kDim>*>(SharedMemory());
  const HeadSlots& head = heads.head[BlockIdxY()];
  const int slot0 = BlockIdx() * kSlots;
  if (slot0 >= head.n_slots) return;
  const int first_head = (call.kv_begin + BlockIdxY()) * call.group;
  // A turn is a head's next rows.
  const int turns_of_head = (call.row_end - call.row_begin + kRows - 1) / kRows, turns = turns_of_head * call.group;
  CopyQueries<kDim>(call, first_head, call.row_begin, tiles[0]);
  const int g = Lane() / 4, t = Lane() % 4;
  int slot[2];
  uint32_t key[kSteps][4];
  WEIR_UNROLL
  for (int j = 0; j < 2; ++j) {
    slot[j] = slot0 + WarpIdx() * kSlotsOfWarp + g + 8 * j;
    const int64_t known = slot[j] < head.n_slots ? slot[j] : head.n_slots - 1;
    const auto* from = reinterpret_cast<const uint32_t*>(head.k + known * kDim * 2);
    WEIR_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      key[step][j] = from[step * 8 + t];
      key[step][j + 2] = from[step * 8 + 4 + t];
    }
  }
  const bool max_rows = score.rows == RowReduce::kMax, max_heads = score.heads == HeadReduce::kMax;
  float total[2] = {0, 0}, of_head[2] = {0, 0};
  for (int turn = 0; turn < turns; ++turn) {
    const int h = first_head + turn / turns_of_head, row0 = call.row_begin + turn % turns_of_head * kRows;
    const QueryTile<kDim>& tile = tiles[turn % 2];
    WaitCopies<0>();
    Barrier();  // the tile is there, and nobody reads the one before it
    if (turn + 1 < turns) {
      CopyQueries<kDim>(call, first_head + (turn + 1) / turns_of_head,
                        call.row_begin + (turn + 1) % turns_of_head * kRows, tiles[(turn + 1) % 2]);
    }
    for (int column0 = 0; column0 < kRows && row0 + column0 < call.row_end; column0 += 8 * kAtOnce) {
      float lse[kAtOnce][2], z[kAtOnce][4];
      WEIR_UNROLL
      for (int c = 0; c < kAtOnce; ++c) {
        WEIR_UNROLL
        for (int i = 0; i < 4; ++i) z[c][i] = 0;
        WEIR_UNROLL
        for (int i = 0; i < 2; ++i) {
          const int row = row0 + column0 + 8 * c + 2 * t + i, known = row < call.row_end ? row : call.row_end - 1;
          lse[c][i] = call.lse[static_cast<int64_t>(known) * call.n_heads + h];
        }
      }
      WEIR_UNROLL
      for (int step = 0; step < kSteps; step += 2) {
        uint32_t right[kAtOnce][4];
        WEIR_UNROLL
        for (int c = 0; c < kAtOnce; ++c) {
          LoadMatrices(right[c], &tile.q[column0 + 8 * c + Lane() % 8][step * 16 + Lane() / 8 * 8]);
        }
        WEIR_UNROLL
        for (int c = 0; c < kAtOnce; ++c) MmaF16(z[c], key[step], right[c]);
        WEIR_UNROLL
        for (int c = 0; c < kAtOnce; ++c) MmaF16(z[c], key[step + 1], right[c] + 2);
      }
      WEIR_UNROLL
      for (int i = 0; i < 4 * kAtOnce; ++i) {
        const int c = i / 4, j = i % 4 / 2, row = row0 + column0 + 8 * c + 2 * t + i % 2;
        if (row >= call.row_end || !Sees(call, head, row, slot[j])) continue;
        const float weight = Exp2((Capped(z[c][i % 4], call.softcap) - lse[c][i % 2]) * kLog2OfE);
        of_head[j] = Reduce(max_rows, of_head[j], weight);
      }
    }
    if ((turn + 1) % turns_of_head != 0) continue;
    WEIR_UNROLL
    for (int j = 0; j < 2; ++j) {
      // The four lanes of a slot have different rows.
      of_head[j] = Reduce(max_rows, of_head[j], ShuffleXor(of_head[j], 1));
      of_head[j] = Reduce(max_rows, of_head[j], ShuffleXor(of_head[j], 2));
      total[j] = Reduce(max_heads, total[j], of_head[j]);
      of_head[j] = 0;
    }
  }
  WEIR_UNROLL
  for (int j = 0; j < 2; ++j) {
    if (t == 0 && slot[j] < head.n_slots) Deliver(call, score, outs, slot[j], total[j]);
  }
}

WEIR_KERNEL void PutTogether(ScoreCall score, int32_t n_kv_heads, int32_t n_heads, int64_t n_slots, float* out) {
  const int64_t slot = GlobalThread();
  if (slot >= n_slots) return;
  float total = 0;
  for (int kv = 0; kv < n_kv_heads; ++kv) {
    total = Reduce(score.heads == HeadReduce::kMax, total, score.apart[kv * score.max_slots + slot]);
  }
  Write(score, total, n_heads, out + slot);
}

ScoreCall CallOf(const ColumnScoresArgs& args, const AttentionScratch& scratch) {
  ScoreCall out;
  out.rows = args.rows;
  out.heads = args.heads;
  out.accumulate = args.accumulate;
  out.weight = args.weight;
  out.max_slots = scratch.max_slots;
  out.sums = scratch.sums;
  out.apart = args.all_heads ? scratch.heads : nullptr;
  return out;
}

ScoreOuts OutsOf(Device& device, const ColumnScoresArgs& args, const AttentionCall& call) {
  ScoreOuts out = {};
  for (int32_t i = 0; i < call.n_kv && !args.all_heads; ++i) out.out[i] = device.Mine(args.out[call.kv_begin + i]);
  return out;
}

}  // namespace

void ScoreFewRows(Device& device, const AttentionCall& call, const SegmentHeads& heads, const ColumnScoresArgs& args,
                  const AttentionScratch& scratch) {
  ScoreCall score = CallOf(args, scratch);
  score.first = call.row_begin == args.row_begin;
  score.last = call.row_end == args.row_end;
  device.Launch(ScoreFew, Grid{Blocks(MostSlots(call, heads), kAttentionThreads), call.n_kv}, kAttentionThreads, 0,
                call, heads, score, OutsOf(device, args, call));
}

void ScoreManyRows(Device& device, const AttentionCall& call, const SegmentHeads& halves, const ColumnScoresArgs& args,
                   const AttentionScratch& scratch) {
  AttentionCall votes = call;
  votes.row_begin = static_cast<int32_t>(args.row_begin);
  votes.row_end = static_cast<int32_t>(args.row_end);
  const Grid grid = {Blocks(MostSlots(call, halves), kSlots), call.n_kv};
  const ScoreCall score = CallOf(args, scratch);
  const ScoreOuts outs = OutsOf(device, args, call);
  if (call.dim == 64) {
    device.Launch(ScoreMany<64>, grid, kManyThreads, 2 * sizeof(QueryTile<64>), votes, halves, score, outs);
  } else {
    device.Launch(ScoreMany<128>, grid, kManyThreads, 2 * sizeof(QueryTile<128>), votes, halves, score, outs);
  }
}

void ScoreAllHeads(Device& device, const ColumnScoresArgs& args, const AttentionScratch& scratch) {
  const AttentionArgs& attention = args.attention;
  const int64_t n = attention.segments[0].n_slots[0];  // all heads have as many
  device.Launch(PutTogether, Grid{Blocks(n, kAttentionThreads)}, kAttentionThreads, 0, CallOf(args, scratch),
                static_cast<int32_t>(attention.n_kv_heads), static_cast<int32_t>(attention.n_heads), n,
                device.Mine(args.out[0]));
}

}  // namespace weir::WEIR_GPU
