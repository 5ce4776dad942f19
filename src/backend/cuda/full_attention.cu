// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/full_attention.h"

namespace weir::WEIR_GPU {
namespace {

constexpr int kSide = 16;  // a block's threads form a square
constexpr int kThreads = kSide * kSide;
constexpr int kOwn = 4;              // queries, and keys, of a thread
constexpr int kRows = kSide * kOwn;  // queries of a block, keys of a tile
constexpr int kChunk = 32;           // elements of queries and keys, and rows of values, loaded at once
constexpr int kPad = 4;              // in floats: eight rows then begin in different banks, 16 bytes aligned

// A block computes kSide * kColumns columns of its head: wider heads are split over blocks, each of which computes all
// scores.
template <int kColumns>
struct Tile {
  float weights[kRows][kRows + kPad];
  union {
    struct {
      float q[kRows][kChunk + kPad], k[kRows][kChunk + kPad];
    } scores;
    float v[kChunk][kSide * kColumns + kPad];
  };
};

// Four floats at a 16-byte boundary.
WEIR_DEVICE void Load4(const float* from, float* to) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}

// Loads n_rows x n_cols floats, with zeros beyond the matrix's rows or columns.
template <int kPitch>
WEIR_DEVICE void Bring(const float* from, int64_t stride, int64_t rows_left, int64_t cols_left, int n_rows, int n_cols,
                       float (*to)[kPitch]) {
  for (int i = ThreadIdx(); i < n_rows * n_cols; i += kThreads) {
    const int row = i / n_cols, col = i % n_cols;
    to[row][col] = row < rows_left && col < cols_left ? from[row * stride + col] : 0.0f;
  }
}

// Reduces over the kSide lanes that share a query.
WEIR_DEVICE float SideMax(float value) {
  for (int step = kSide / 2; step > 0; step /= 2) value = fmaxf(value, ShuffleXor(value, step));
  return value;
}
WEIR_DEVICE float SideSum(float value) {
  for (int step = kSide / 2; step > 0; step /= 2) value += ShuffleXor(value, step);
  return value;
}

// Block (tile of queries, head, tile of columns). Thread (ty, tx) has queries 4 ty .. 4 ty + 3, keys tx + 16 j and
// columns tx + 16 c.
template <int kColumns>
WEIR_KERNEL WEIR_SHARING(kThreads, 2) void MixTile(FullAttentionArgs a) {
  auto& tile = *reinterpret_cast<Tile<kColumns>*>(SharedMemory());
  const int ty = ThreadIdx() / kSide, tx = ThreadIdx() % kSide;
  const int64_t query0 = static_cast<int64_t>(BlockIdx()) * kRows, head0 = BlockIdxY() * a.head_dim;
  const int64_t column0 = static_cast<int64_t>(BlockIdxZ()) * kSide * kColumns;
  float mix[kOwn][kColumns], max[kOwn], sum[kOwn];
  WEIR_UNROLL
  for (int i = 0; i < kOwn; ++i) {
    max[i] = -INFINITY;
    sum[i] = 0;
    WEIR_UNROLL
    for (int c = 0; c < kColumns; ++c) mix[i][c] = 0;
  }
  for (int64_t key0 = 0; key0 < a.n_kv; key0 += kRows) {
    float z[kOwn][kOwn];
    WEIR_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      WEIR_UNROLL
      for (int j = 0; j < kOwn; ++j) z[i][j] = 0;
    }
    for (int64_t e0 = 0; e0 < a.head_dim; e0 += kChunk) {
      Barrier();
      Bring(a.q + query0 * a.q_stride + head0 + e0, a.q_stride, a.n_q - query0, a.head_dim - e0, kRows, kChunk,
            tile.scores.q);
      Bring(a.k + key0 * a.kv_stride + head0 + e0, a.kv_stride, a.n_kv - key0, a.head_dim - e0, kRows, kChunk,
            tile.scores.k);
      Barrier();
      for (int e = 0; e < kChunk && e0 + e < a.head_dim; e += 4) {
        float q[kOwn][4], k[kOwn][4];
        WEIR_UNROLL
        for (int i = 0; i < kOwn; ++i) {
          Load4(&tile.scores.q[ty * kOwn + i][e], q[i]);
          Load4(&tile.scores.k[tx + i * kSide][e], k[i]);
        }
        WEIR_UNROLL
        for (int i = 0; i < kOwn; ++i) {
          WEIR_UNROLL
          for (int j = 0; j < kOwn; ++j) {
            WEIR_UNROLL
            for (int x = 0; x < 4; ++x) z[i][j] = fmaf(q[i][x], k[j][x], z[i][j]);
          }
        }
      }
    }
    WEIR_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      float most = -INFINITY;
      WEIR_UNROLL
      for (int j = 0; j < kOwn; ++j) {
        z[i][j] = key0 + tx + j * kSide < a.n_kv ? a.scale * z[i][j] : -INFINITY;
        most = fmaxf(most, z[i][j]);
      }
      const float now = fmaxf(max[i], SideMax(most));
      const float factor = max[i] == -INFINITY ? 0.0f : expf(max[i] - now);
      max[i] = now;
      float added = 0;
      WEIR_UNROLL
      for (int j = 0; j < kOwn; ++j) {
        const float weight = expf(z[i][j] - now);
        tile.weights[ty * kOwn + i][tx + j * kSide] = weight;
        added += weight;
      }
      sum[i] = fmaf(sum[i], factor, SideSum(added));
      WEIR_UNROLL
      for (int c = 0; c < kColumns; ++c) mix[i][c] *= factor;
    }
    for (int64_t row0 = 0; row0 < kRows && key0 + row0 < a.n_kv; row0 += kChunk) {
      Barrier();
      Bring(a.v + (key0 + row0) * a.kv_stride + head0 + column0, a.kv_stride, a.n_kv - key0 - row0,
            a.head_dim - column0, kChunk, kSide * kColumns, tile.v);
      Barrier();
      for (int row = 0; row < kChunk; row += 4) {
        float weights[kOwn][4];
        WEIR_UNROLL
        for (int i = 0; i < kOwn; ++i) Load4(&tile.weights[ty * kOwn + i][row0 + row], weights[i]);
        WEIR_UNROLL
        for (int x = 0; x < 4; ++x) {
          WEIR_UNROLL
          for (int c = 0; c < kColumns; ++c) {
            const float value = tile.v[row + x][tx + c * kSide];
            WEIR_UNROLL
            for (int i = 0; i < kOwn; ++i) mix[i][c] = fmaf(weights[i][x], value, mix[i][c]);
          }
        }
      }
    }
  }
  WEIR_UNROLL
  for (int i = 0; i < kOwn; ++i) {
    const int64_t query = query0 + ty * kOwn + i;
    if (query >= a.n_q) continue;
    WEIR_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const int64_t column = column0 + tx + c * kSide;
      if (column < a.head_dim) a.out[query * a.out_stride + head0 + column] = mix[i][c] / sum[i];
    }
  }
}

// One block per row; one warp per key.
WEIR_KERNEL void WeightRow(FullAttentionWeightsArgs w) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  const FullAttentionArgs& a = w.attention;
  const float* q = a.q + (w.row_begin + BlockIdx()) * a.q_stride + w.head * a.head_dim;
  float* out = w.out + BlockIdx() * a.n_kv;
  float most = -INFINITY;
  for (int64_t j = WarpIdx(); j < a.n_kv; j += NumWarps()) {
    const float* k = a.k + j * a.kv_stride + w.head * a.head_dim;
    float dot = 0;
    for (int64_t e = Lane(); e < a.head_dim; e += kWarp) dot = fmaf(q[e], k[e], dot);
    const float score = a.scale * WarpSum(dot);
    if (Lane() == 0) out[j] = score;
    most = fmaxf(most, score);
  }
  if (Lane() == 0) shared[WarpIdx()] = most;
  Barrier();
  most = WarpMax(Lane() < NumWarps() ? shared[Lane()] : -INFINITY);
  float sum = 0;
  for (int64_t j = ThreadIdx(); j < a.n_kv; j += NumThreads()) sum += expf(out[j] - most);
  sum = BlockSum(sum, shared);
  for (int64_t j = ThreadIdx(); j < a.n_kv; j += NumThreads()) out[j] = expf(out[j] - most) / sum;
}

template <int kColumns>
void Mix(Device& device, const FullAttentionArgs& args) {
  device.Launch(MixTile<kColumns>, Grid{Blocks(args.n_q, kRows), args.n_heads, Blocks(args.head_dim, kSide * kColumns)},
                kThreads, sizeof(Tile<kColumns>), args);
}

}  // namespace

void FullAttention(Device& device, const FullAttentionArgs& args) {
  device.Mine(args.q), device.Mine(args.k), device.Mine(args.v), device.Mine(args.out);
  // As wide as the head: missing columns would be computed all the same.
  if (args.head_dim <= 64) return Mix<4>(device, args);
  if (args.head_dim <= 96) return Mix<6>(device, args);
  Mix<8>(device, args);
}

void FullAttentionWeights(Device& device, const FullAttentionWeightsArgs& args) {
  device.Mine(args.attention.q), device.Mine(args.attention.k), device.Mine(args.out);
  device.Launch(WeightRow, Grid{args.n_rows}, kThreads, kWarp * 4, args);
}

}  // namespace weir::WEIR_GPU
