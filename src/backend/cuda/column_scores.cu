// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/attention.h"

namespace weir::WEIR_GPU {
namespace {

constexpr int kRowsAtOnce = 4;  // of a warp, while a key's element is in a register

struct ScoreCall {
  RowReduce rows;
  HeadReduce heads;
  bool accumulate;
  float weight;
  int64_t max_slots;       // row length of `apart`
  float* apart = nullptr;  // [n_kv_heads, max_slots]: one KV head's sums, to be combined; nullptr: they go to `out`
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

// Block (tile of slots, KV head): each lane has a slot, the warps share the rows.
WEIR_KERNEL void ScoreTile(AttentionCall call, SegmentHeads heads, ScoreCall score, ScoreOuts outs) {
  const HeadSlots& head = heads.head[BlockIdxY()];
  const int64_t slot0 = static_cast<int64_t>(BlockIdx()) * kTileSlots;
  if (slot0 >= head.n_slots) return;
  auto* tile = reinterpret_cast<float*>(SharedMemory());
  const int pitch = call.dim + 1;
  float* parts = tile + kTileSlots * pitch;  // [warps, kTileSlots]
  const int64_t n = head.n_slots - slot0 < kTileSlots ? head.n_slots - slot0 : kTileSlots;
  LoadKeys(call, head, slot0, static_cast<int>(n), tile, pitch);
  Barrier();
  const int64_t slot = slot0 + Lane();
  const float* key = tile + (Lane() < n ? Lane() : 0) * pitch;
  const bool max_rows = score.rows == RowReduce::kMax, max_heads = score.heads == HeadReduce::kMax;
  float total = 0;
  for (int g = 0; g < call.group; ++g) {
    const int h = (call.kv_begin + BlockIdxY()) * call.group + g;
    float of_head = 0;
    for (int row = call.row_begin + WarpIdx() * kRowsAtOnce; row < call.row_end; row += NumWarps() * kRowsAtOnce) {
      float z[kRowsAtOnce];
      const float* q[kRowsAtOnce];
      WEIR_UNROLL
      for (int j = 0; j < kRowsAtOnce; ++j) {
        const int64_t r = row + j < call.row_end ? row + j : call.row_end - 1;
        q[j] = call.q + (r * call.n_heads + h) * call.dim;
        z[j] = 0;
      }
      for (int e = 0; e < call.dim; ++e) {
        const float x = key[e];
        WEIR_UNROLL
        for (int j = 0; j < kRowsAtOnce; ++j) z[j] = fmaf(q[j][e], x, z[j]);
      }
      WEIR_UNROLL
      for (int j = 0; j < kRowsAtOnce; ++j) {
        const int64_t r = row + j;
        if (r >= call.row_end || Lane() >= n || slot > LastSlot(call, head, r) || slot < FirstSlot(head, r)) continue;
        of_head = Reduce(max_rows, of_head, expf(Capped(z[j], call.softcap) - call.lse[r * call.n_heads + h]));
      }
    }
    parts[WarpIdx() * kTileSlots + Lane()] = of_head;
    Barrier();
    float sum = 0;
    for (int w = 0; w < NumWarps(); ++w) sum = Reduce(max_rows, sum, parts[w * kTileSlots + Lane()]);
    total = Reduce(max_heads, total, sum);
    Barrier();
  }
  if (WarpIdx() > 0 || Lane() >= n) return;
  if (score.apart != nullptr) {
    score.apart[(call.kv_begin + BlockIdxY()) * score.max_slots + slot] = total;
  } else {
    Write(score, total, call.group, outs.out[BlockIdxY()] + slot);
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

// The statistics of a call whose queries and sums are in scratch.
void Score(Device& device, const ColumnScoresArgs& args, const AttentionScratch& scratch) {
  const AttentionArgs& attention = args.attention;
  const AttentionSegment& segment = attention.segments[0];
  AttentionCall call = CallOf(attention, segment, scratch);
  call.row_begin = static_cast<int32_t>(args.row_begin);
  call.row_end = static_cast<int32_t>(args.row_end);
  int64_t most = 0;
  for (int64_t kv = 0; kv < attention.n_kv_heads; ++kv) most = segment.n_slots[kv] > most ? segment.n_slots[kv] : most;
  ScoreCall score = {args.rows,   args.heads, args.accumulate,
                     args.weight, most,       args.all_heads ? scratch.heads : nullptr};
  for (int64_t kv = 0; kv < attention.n_kv_heads; kv += kHeadsALaunch) {
    const int64_t left = attention.n_kv_heads - kv, n = left < kHeadsALaunch ? left : kHeadsALaunch;
    call.kv_begin = static_cast<int32_t>(kv);
    ScoreOuts outs = {};
    for (int64_t i = 0; i < n && !args.all_heads; ++i) outs.out[i] = device.Mine(args.out[kv + i]);
    const int64_t shared = 4 * (kTileSlots * (attention.head_dim + 1) + kAttentionThreads);
    device.Launch(ScoreTile, Grid{Blocks(most, kTileSlots), n}, kAttentionThreads, shared, call,
                  HeadsOf(device, attention, segment, kv, n), score, outs);
  }
  if (!args.all_heads) return;
  device.Launch(PutTogether, Grid{Blocks(most, kAttentionThreads)}, kAttentionThreads, 0, score,
                static_cast<int32_t>(attention.n_kv_heads), static_cast<int32_t>(attention.n_heads), most,
                device.Mine(args.out[0]));
}

}  // namespace

void ColumnScores(Device& device, const ColumnScoresArgs& args) {
  AttentionArgs attention = args.attention;
  attention.out = nullptr;  // only the sums are wanted
  attention.scratch = device.Mine(static_cast<uint8_t*>(args.scratch));
  device.Mine(attention.q);
  const AttentionScratch scratch = ScratchOf(attention, RowsOf(attention));
  Attend(device, attention, attention.segments[0], scratch, args.row_begin, args.row_end);
  Score(device, args, scratch);
}

void AttentionWithScores(Device& device, const AttentionArgs& args, std::span<const ColumnScoresArgs> scores) {
  Attention(device, args);
  const AttentionScratch scratch = ScratchOf(args, RowsOf(args));
  for (const ColumnScoresArgs& segment : scores) Score(device, segment, scratch);
}

}  // namespace weir::WEIR_GPU
