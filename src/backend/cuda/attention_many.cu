// SPDX-License-Identifier: Apache-2.0
// Attention of many rows on the half-precision matrix units: a block has 64 queries of one KV head and processes the
// slots 64 at a time. Scores, weights and outputs stay in registers; queries, keys, values and weights are rounded to
// halves, sums are F32.
#include "backend/cuda/attention.h"

namespace weir::WEIR_GPU {
namespace {

constexpr int kSlots = 64;  // loaded at once
constexpr int kQueriesOfWarp = 16;
constexpr int kThreads = 128;
constexpr int kPad = 8;  // in halves: eight rows then begin in different banks

WEIR_DEVICE uint32_t Halves(float low, float high) {
  return static_cast<uint32_t>(FloatToHalf(low)) | static_cast<uint32_t>(FloatToHalf(high)) << 16;
}
WEIR_DEVICE uint32_t Word(const uint16_t* halves) { return *reinterpret_cast<const uint32_t*>(halves); }

template <int kDim>
struct HalfTile {
  uint16_t k[kSlots][kDim + kPad];
  uint16_t v[kDim][kSlots + kPad];  // transposed: a column of the product is then a row here
};

// Keys rotated as in LoadKeys(), values transposed; entries beyond n are zero.
template <int kDim>
WEIR_DEVICE void LoadTile(const AttentionCall& call, const HeadSlots& head, int64_t idx0, int n, HalfTile<kDim>& tile) {
  const int n_pairs = call.keys.n_pairs;
  for (int i = ThreadIdx(); i < kSlots * kDim; i += kThreads) {
    const int s = i / kDim, e = i % kDim;
    const int64_t slot = s >= n ? 0 : head.selected != nullptr ? head.selected[idx0 + s] : idx0 + s;
    const uint8_t* value = head.v + slot * call.v_slot_bytes;
    tile.v[e][s] = s < n ? FloatToHalf(SlotElement(call.v_type, value, e)) : uint16_t{0};
    if (e >= n_pairs && e < 2 * n_pairs) continue;  // written with its pair
    const uint8_t* key = head.k + slot * call.k_slot_bytes;
    float x0 = s < n ? SlotElement(call.k_type, key, e) : 0.0f;
    if (e < n_pairs) {
      const float x1 = s < n ? SlotElement(call.k_type, key, e + n_pairs) : 0.0f;
      float c = 1, d = 0;
      if (s < n) AngleAt(call.keys, slot, e, &c, &d);
      tile.k[s][e + n_pairs] = FloatToHalf(x1 * c + x0 * d);
      x0 = x0 * c - x1 * d;
    }
    tile.k[s][e] = FloatToHalf(x0);
  }
}

// Block (KV head, tile of queries).
template <int kDim>
WEIR_KERNEL void AttendMany(AttentionCall call, SegmentHeads heads) {
  constexpr int kSteps = kDim / 16, kColumns = kDim / 8, kScores = kSlots / 8;
  auto& tile = *reinterpret_cast<HalfTile<kDim>*>(SharedMemory());
  const HeadSlots& head = heads.head[BlockIdx()];
  const int g = Lane() / 4, t = Lane() % 4;
  const int64_t n_all = static_cast<int64_t>(call.row_end - call.row_begin) * call.group;
  const int64_t query0 = static_cast<int64_t>(BlockIdxY()) * (kThreads / kWarp * kQueriesOfWarp);
  const int64_t last_query =
      query0 + kThreads / kWarp * kQueriesOfWarp < n_all ? query0 + kThreads / kWarp * kQueriesOfWarp : n_all;
  const int first_head = (call.kv_begin + BlockIdx()) * call.group;

  // A lane has parts of two queries: g and g + 8 of its warp's. Missing queries see nothing and are not written.
  int64_t query[2], row[2], vector[2];
  int32_t first[2], last[2];
  WEIR_UNROLL
  for (int j = 0; j < 2; ++j) {
    query[j] = query0 + WarpIdx() * kQueriesOfWarp + g + 8 * j;
    const int64_t known = query[j] < n_all ? query[j] : n_all - 1;
    row[j] = call.row_begin + known / call.group;
    vector[j] = row[j] * call.n_heads + first_head + known % call.group;
    first[j] = query[j] < n_all ? FirstSlot(head, row[j]) : 1;
    last[j] = query[j] < n_all ? LastSlot(call, head, row[j]) : 0;
  }
  uint32_t q[kSteps][4];
  WEIR_UNROLL
  for (int step = 0; step < kSteps; ++step) {
    WEIR_UNROLL
    for (int j = 0; j < 4; ++j) {
      const float* from = call.q + vector[j % 2] * kDim + step * 16 + j / 2 * 8 + 2 * t;
      q[step][j] = Halves(from[0], from[1]);
    }
  }
  float mix[kColumns][4], max[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
  WEIR_UNROLL
  for (int j = 0; j < 2 && call.sinks != nullptr; ++j) {
    max[j] = call.sinks[vector[j] % call.n_heads];
    sum[j] = t == 0 ? 1.0f : 0.0f;  // the four lanes of a query add their sums at the end
  }
  WEIR_UNROLL
  for (int c = 0; c < kColumns; ++c) {
    WEIR_UNROLL
    for (int i = 0; i < 4; ++i) mix[c][i] = 0;
  }

  const int64_t begin = head.selected != nullptr ? 0 : FirstSlot(head, call.row_begin + query0 / call.group);
  const int64_t end = head.selected != nullptr
                          ? head.n_selected
                          : LastSlot(call, head, call.row_begin + (last_query - 1) / call.group) + 1;
  for (int64_t idx = begin; idx < end; idx += kSlots) {
    const int n = static_cast<int>(end - idx < kSlots ? end - idx : kSlots);
    Barrier();
    LoadTile<kDim>(call, head, idx, n, tile);
    Barrier();
    float z[kScores][4];
    WEIR_UNROLL
    for (int c = 0; c < kScores; ++c) {
      WEIR_UNROLL
      for (int i = 0; i < 4; ++i) z[c][i] = 0;
      WEIR_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        const uint16_t* key = &tile.k[c * 8 + g][step * 16 + 2 * t];
        const uint32_t right[2] = {Word(key), Word(key + 8)};
        MmaF16(z[c], q[step], right);
      }
    }
    float tile_max[2] = {-INFINITY, -INFINITY};
    WEIR_UNROLL
    for (int c = 0; c < kScores; ++c) {
      WEIR_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int s = c * 8 + 2 * t + i % 2;
        const int64_t slot = s >= n ? 0 : head.selected != nullptr ? head.selected[idx + s] : idx + s;
        const bool seen = s < n && slot <= last[i / 2] && slot >= first[i / 2];
        z[c][i] = seen ? Capped(z[c][i], call.softcap) : -INFINITY;
        tile_max[i / 2] = fmaxf(tile_max[i / 2], z[c][i]);
      }
    }
    WEIR_UNROLL
    for (int j = 0; j < 2; ++j) {
      // A query's scores are in the four lanes of its row.
      tile_max[j] = fmaxf(tile_max[j], ShuffleXor(tile_max[j], 1));
      tile_max[j] = fmaxf(tile_max[j], ShuffleXor(tile_max[j], 2));
      const float now = fmaxf(max[j], tile_max[j]);
      const float factor = max[j] == -INFINITY ? 0.0f : expf(max[j] - now);
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
        z[c][i] = z[c][i] == -INFINITY ? 0.0f : expf(z[c][i] - max[i / 2]);
        sum[i / 2] += z[c][i];
      }
    }
    WEIR_UNROLL
    for (int step = 0; step < kSlots / 16; ++step) {
      // Two neighbouring results form one left operand.
      const uint32_t left[4] = {Halves(z[2 * step][0], z[2 * step][1]), Halves(z[2 * step][2], z[2 * step][3]),
                                Halves(z[2 * step + 1][0], z[2 * step + 1][1]),
                                Halves(z[2 * step + 1][2], z[2 * step + 1][3])};
      WEIR_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        const uint16_t* value = &tile.v[c * 8 + g][step * 16 + 2 * t];
        const uint32_t right[2] = {Word(value), Word(value + 8)};
        MmaF16(mix[c], left, right);
      }
    }
  }
  WEIR_UNROLL
  for (int j = 0; j < 2; ++j) {
    sum[j] += ShuffleXor(sum[j], 1);
    sum[j] += ShuffleXor(sum[j], 2);
    if (query[j] >= n_all) continue;
    const int64_t h = first_head + query[j] % call.group;
    WEIR_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      float* out = call.out + row[j] * call.out_stride + h * kDim + c * 8 + 2 * t;
      out[0] = mix[c][2 * j] / sum[j];
      out[1] = mix[c][2 * j + 1] / sum[j];
    }
    if (t == 0) call.lse[vector[j]] = max[j] + logf(sum[j]);
  }
}

}  // namespace

bool HasAttendMany(const AttentionCall& call) {
  const bool halves = call.k_type != DType::kF32 && call.v_type != DType::kF32;
  return halves && call.out != nullptr && (call.dim == 64 || call.dim == 128) &&
         (call.row_end - call.row_begin) * call.group >= kSlots;
}

void AttendManyRows(Device& device, const AttentionCall& call, const SegmentHeads& heads, int64_t n_heads) {
  const int64_t tiles =
      Blocks(static_cast<int64_t>(call.row_end - call.row_begin) * call.group, kThreads / kWarp * kQueriesOfWarp);
  if (call.dim == 64) {
    device.Launch(AttendMany<64>, Grid{n_heads, tiles}, kThreads, sizeof(HalfTile<64>), call, heads);
  } else {
    device.Launch(AttendMany<128>, Grid{n_heads, tiles}, kThreads, sizeof(HalfTile<128>), call, heads);
  }
}

}  // namespace weir::WEIR_GPU
