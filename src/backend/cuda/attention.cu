// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/attention.h"

#include <algorithm>

#include "base/workspace.h"
#include "ops/kv_slots.h"

namespace weir::WEIR_GPU {
namespace {

// Rotates and scales the queries of a call's heads. Block (row of the segment, query head).
struct QueryCall {
  const float* q = nullptr;
  int64_t q_stride = 0;
  float* to = nullptr;  // the segment's rows of scratch: floats, or if this is nullptr halves
  uint16_t* to_halves = nullptr;
  const float* row_cos = nullptr;  // rows of the segment; nullptr: the positions are slots
  const float* row_sin = nullptr;
  Angles angles;
  int32_t n_rows = 0, n_heads = 0, group = 0, dim = 0, kv_begin = 0;
  float scale = 1;
};

WEIR_KERNEL void PrepareQueries(QueryCall call, SegmentHeads heads) {
  const int64_t i = BlockIdx(), h = call.kv_begin * call.group + BlockIdxY();
  const int n_pairs = call.angles.n_pairs;
  const float* vector = call.q + i * call.q_stride + h * call.dim;
  const int64_t to = (i * call.n_heads + h) * call.dim;
  for (int e = ThreadIdx(); e < call.dim; e += NumThreads()) {
    float value = vector[e];
    if (e < 2 * n_pairs) {
      const int p = e < n_pairs ? e : e - n_pairs;
      float c, s;
      if (call.row_cos != nullptr) {
        c = call.row_cos[i * n_pairs + p] * call.angles.magnitude;
        s = call.row_sin[i * n_pairs + p] * call.angles.magnitude;
      } else {
        AngleAt(call.angles, heads.head[BlockIdxY() / call.group].n_slots - call.n_rows + i, p, &c, &s);
      }
      value = e < n_pairs ? value * c - vector[p + n_pairs] * s : value * c + vector[p] * s;
    }
    if (call.to != nullptr) {
      call.to[to + e] = value * call.scale;
    } else {
      call.to_halves[to + e] = FloatToHalf(value * call.scale);
    }
  }
}

// Block (row, query head): combines the splits.
WEIR_KERNEL void CombineSplits(AttentionCall call) {
  const int64_t row = call.row_begin + BlockIdx(), h = call.kv_begin * call.group + BlockIdxY();
  const float* partial = PartialOf(call, 0, static_cast<int>(row), BlockIdxY());
  const int64_t stride = PartialOf(call, 1, static_cast<int>(row), BlockIdxY()) - partial;
  auto* factors = reinterpret_cast<float*>(SharedMemory());  // [n_splits]
  // Every warp finds the maximum and the sum; the first one keeps the factors.
  float max = -INFINITY, sum = 0;
  for (int s = Lane(); s < call.n_splits; s += kWarp) max = fmaxf(max, partial[s * stride + call.dim]);
  max = WarpMax(max);
  for (int s = Lane(); s < call.n_splits; s += kWarp) {
    const float factor = expf(partial[s * stride + call.dim] - max);
    sum = fmaf(partial[s * stride + call.dim + 1], factor, sum);
    if (WarpIdx() == 0) factors[s] = factor;
  }
  sum = WarpSum(sum);
  if (ThreadIdx() == 0) call.lse[row * call.n_heads + h] = max + logf(sum);
  if (call.out == nullptr) return;
  Barrier();
  for (int e = ThreadIdx(); e < call.dim; e += NumThreads()) {
    float mix = 0;
    WEIR_UNROLL_BY(8)
    for (int s = 0; s < call.n_splits; ++s) mix = fmaf(partial[s * stride + e], factors[s], mix);
    call.out[row * call.out_stride + h * call.dim + e] = mix / sum;
  }
}

int64_t RowsOf(const AttentionArgs& args) {
  int64_t n = 0;
  for (const AttentionSegment& segment : args.segments) n = std::max(n, segment.first_row + segment.n_rows);
  return n;
}

// So many pieces of `bytes` each as fit into `limit`; at least one, at most n.
int64_t Fitting(int64_t limit, int64_t bytes, int64_t n) { return std::clamp<int64_t>(limit / bytes, 1, n); }

// No region shrinks when a shape grows: the scratch of the largest call is enough for all.
AttentionScratch ScratchOver(void* base, const AttentionShape& shape, bool statistics) {
  Workspace space(static_cast<uint8_t*>(base));
  AttentionScratch out;
  const int64_t slots = out.max_slots = std::max<int64_t>(shape.max_slots, 1);
  out.partial = space.Floats(AttentionScratch::kPartialRows * (shape.head_dim + 2));
  out.q = space.Floats(shape.max_rows * shape.n_heads * shape.head_dim);
  out.lse = space.Floats(shape.max_rows * shape.n_heads);
  if (HasAttendMany(shape.max_rows, shape.n_heads / shape.n_kv_heads, shape.head_dim)) {
    const int64_t one = 2 * slots * shape.head_dim * 2;
    out.halves_heads = Fitting(AttentionScratch::kHalvesBytes, one, shape.n_kv_heads);
    out.halves = reinterpret_cast<uint16_t*>(
        space.Bytes(std::max(one, std::min(AttentionScratch::kHalvesBytes, shape.n_kv_heads * one))));
  }
  if (statistics) {
    const int64_t row = shape.n_heads * slots * 4;
    out.z_rows = Fitting(AttentionScratch::kScoreBytes, row, shape.max_rows);
    out.z = reinterpret_cast<float*>(
        space.Bytes(std::max(row, std::min(AttentionScratch::kScoreBytes, shape.max_rows * row))));
    out.sums = space.Floats(shape.n_heads * slots);
    out.heads = space.Floats(shape.n_kv_heads * slots);
  }
  out.bytes = space.used();
  return out;
}

AttentionScratch ScratchOf(Device& device, const AttentionArgs& args, void* scratch, bool statistics) {
  int64_t slots = 0;
  for (const AttentionSegment& segment : args.segments) {
    for (int64_t kv = 0; kv < args.n_kv_heads; ++kv) slots = std::max<int64_t>(slots, segment.n_slots[kv]);
  }
  return ScratchOver(device.Mine(static_cast<uint8_t*>(scratch)),
                     {args.n_heads, args.n_kv_heads, args.head_dim, RowsOf(args), slots}, statistics);
}

// The heads of a segment, with its lists on the device.
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
  call.lse = scratch.lse + segment.first_row * args.n_heads;
  call.out = args.out != nullptr ? args.out + segment.first_row * args.out_stride : nullptr;
  call.out_stride = args.out_stride;
  call.partial = scratch.partial;
  call.n_rows = static_cast<int32_t>(segment.n_rows);
  call.n_heads = static_cast<int32_t>(args.n_heads);
  call.group = static_cast<int32_t>(args.n_heads / args.n_kv_heads);
  call.dim = static_cast<int32_t>(args.head_dim);
  call.two_way = segment.two_way;
  call.k_type = args.k_type;
  call.v_type = args.v_type;
  call.k_slot_bytes = SlotBytes(args.k_type, args.head_dim);
  call.v_slot_bytes = SlotBytes(args.v_type, args.head_dim);
  call.softcap = args.softcap;
  call.sinks = args.sinks;
  if (!args.keys_rotated) call.keys = AnglesOf(args.rope);
  return call;
}

// Fills scratch.q for a segment, and scratch.lse for rows [row_begin, row_end) of it; the output goes to args.out if it
// is set. Then the statistics, if any are asked for.
void Attend(Device& device, const AttentionArgs& args, const AttentionSegment& segment, const AttentionScratch& scratch,
            int64_t row_begin, int64_t row_end, const ColumnScoresArgs* scores) {
  AttentionCall call = CallOf(args, segment, scratch);
  call.row_begin = static_cast<int32_t>(row_begin);
  call.row_end = static_cast<int32_t>(row_end);
  QueryCall query;
  query.q = args.q + segment.first_row * args.q_stride;
  query.q_stride = args.q_stride;
  const int64_t first_q = segment.first_row * args.n_heads * args.head_dim;
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
  const bool many = args.k_type != DType::kF32 && args.v_type != DType::kF32 &&
                    HasAttendMany(row_end - row_begin, call.group, call.dim);
  if (many) {
    call.half_q = query.to_halves = reinterpret_cast<uint16_t*>(scratch.q) + first_q;
  } else {
    call.q = query.to = scratch.q + first_q;
  }
  const int64_t at_once = many ? std::min<int64_t>(kHeadsALaunch, scratch.halves_heads) : kHeadsALaunch;
  for (int64_t kv = 0; kv < args.n_kv_heads; kv += at_once) {
    const int64_t n = std::min(at_once, args.n_kv_heads - kv);
    const SegmentHeads heads = HeadsOf(device, args, segment, kv, n);
    query.kv_begin = call.kv_begin = static_cast<int32_t>(kv);
    call.n_kv = static_cast<int32_t>(n);
    // If positions are not slots, nothing here changes from token to token.
    device.Launch(PrepareQueries, Grid{segment.n_rows, n * call.group}, kAttentionThreads, 0, query,
                  query.row_cos == nullptr ? heads : SegmentHeads());
    if (many) {
      const SegmentHeads halves = HalvesOf(device, call, heads, scratch);
      AttendManyRows(device, call, halves);
      if (scores != nullptr) ScoreManyRows(device, call, halves, *scores, scratch);
      continue;
    }
    // Rows that vote leave their scores, as many at once as there is memory for.
    const int64_t votes_begin = scores != nullptr ? scores->row_begin : row_end;
    const int64_t votes_end = scores != nullptr ? scores->row_end : row_end;
    for (int64_t row = row_begin; row < row_end;) {
      const bool votes = row >= votes_begin && row < votes_end;
      const int64_t end = row < votes_begin ? votes_begin : votes ? std::min(row + scratch.z_rows, votes_end) : row_end;
      call.row_begin = static_cast<int32_t>(row);
      call.row_end = static_cast<int32_t>(end);
      call.z = votes ? scratch.z : nullptr;
      call.z_stride = votes ? scratch.max_slots : 0;
      AttendFewRows(device, call, heads);
      if (votes) ScoreFewRows(device, call, heads, *scores, scratch);
      row = end;
    }
  }
  if (scores != nullptr && scores->all_heads) ScoreAllHeads(device, *scores, scratch);
}

}  // namespace

int32_t Splits(const AttentionCall& call, int64_t n_blocks, int64_t wanted, int64_t n_slots, int64_t least_slots) {
  const int64_t n_vectors = static_cast<int64_t>(call.row_end - call.row_begin) * call.n_kv * call.group;
  const int64_t most = std::min({kMaxSplits, AttentionScratch::kPartialRows / n_vectors, Blocks(n_slots, least_slots)});
  return static_cast<int32_t>(std::max<int64_t>(1, std::min(wanted / n_blocks, most)));
}

void Combine(Device& device, AttentionCall call) {
  if (call.n_splits == 1) return;
  call.z = nullptr, call.z_stride = 0;  // it does not change with them
  device.Launch(CombineSplits, Grid{call.row_end - call.row_begin, call.n_kv * call.group}, kAttentionThreads,
                kMaxSplits * 4, call);
}

int64_t MostSlots(const AttentionCall& call, const SegmentHeads& heads) {
  int64_t most = 0;
  for (int32_t i = 0; i < call.n_kv; ++i) {
    const HeadSlots& head = heads.head[i];
    most = std::max<int64_t>(most, head.selected != nullptr ? head.n_selected : head.n_slots);
  }
  return most;
}

int64_t AttentionScratchBytes(const AttentionShape& shape) { return ScratchOver(nullptr, shape, false).bytes; }
int64_t ColumnScoresScratchBytes(const AttentionShape& shape) { return ScratchOver(nullptr, shape, true).bytes; }

void Attention(Device& device, const AttentionArgs& args) { AttentionWithScores(device, args, {}); }

void ColumnScores(Device& device, const ColumnScoresArgs& args) {
  AttentionArgs attention = args.attention;
  attention.out = nullptr;  // only the sums are wanted
  device.Mine(attention.q);
  Attend(device, attention, attention.segments[0], ScratchOf(device, attention, args.scratch, true), args.row_begin,
         args.row_end, &args);
}

void AttentionWithScores(Device& device, const AttentionArgs& args, std::span<const ColumnScoresArgs> scores) {
  device.Mine(args.q), device.Mine(args.out);
  const AttentionScratch scratch = ScratchOf(device, args, args.scratch, !scores.empty());
  for (const AttentionSegment& segment : args.segments) {
    const auto of_segment = std::find_if(scores.begin(), scores.end(), [&](const ColumnScoresArgs& one) {
      return one.attention.segments[0].first_row == segment.first_row;
    });
    Attend(device, args, segment, scratch, 0, segment.n_rows, of_segment != scores.end() ? &*of_segment : nullptr);
  }
}

}  // namespace weir::WEIR_GPU
