// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/full_attention.h"

#include <algorithm>
#include <cstring>

#define HWY_WANT_AVX3_DL
// Arrays of vectors need vectors of a size known at compile time.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/full_attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
//
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// Query rows that share every loaded key and value. One vector of sums each: eight chains hide the latency of a
// multiply-add.
constexpr int kRows = 8;

// out[r, j] = sum_i rows[r][i * row_step] * matrix[i, j] for j in [0, n_cols), n_cols and `pitch` are whole vectors.
HWY_INLINE void RowsTimesMatrix(const float* const* rows, const float* matrix, int64_t n_inner, int64_t n_cols,
                                float* out) {
  const DF df;
  const int64_t n = static_cast<int64_t>(hn::Lanes(df));
  for (int64_t j = 0; j < n_cols; j += n) {
    VF sums[kRows];
    for (int r = 0; r < kRows; ++r) sums[r] = hn::Zero(df);
    for (int64_t i = 0; i < n_inner; ++i) {
      const VF m = hn::Load(df, matrix + i * n_cols + j);
      for (int r = 0; r < kRows; ++r) sums[r] = hn::MulAdd(hn::Set(df, rows[r][i]), m, sums[r]);
    }
    for (int r = 0; r < kRows; ++r) hn::Store(sums[r], df, out + r * n_cols + j);
  }
}

// Turns scores into exp(scale * (score - largest)) and returns the sum. Columns from n_kv on become zero.
HWY_INLINE float ExpRow(float* scores, int64_t n_kv, int64_t n_cols, float scale) {
  const DF df;
  const int64_t n = static_cast<int64_t>(hn::Lanes(df));
  // A negative scale would reverse the order, so scale before finding the largest.
  const VF factor = hn::Set(df, scale);
  for (int64_t j = 0; j < n_cols; j += n) hn::Store(hn::Mul(hn::Load(df, scores + j), factor), df, scores + j);
  std::fill(scores + n_kv, scores + n_cols, -3e38f);
  VF most = hn::Load(df, scores);
  for (int64_t j = n; j < n_cols; j += n) most = hn::Max(most, hn::Load(df, scores + j));
  const VF largest = hn::MaxOfLanes(df, most);
  VF sum = hn::Zero(df);
  for (int64_t j = 0; j < n_cols; j += n) {
    const VF e = hn::Exp(df, hn::Sub(hn::Load(df, scores + j), largest));
    hn::Store(e, df, scores + j);
    sum = hn::Add(sum, e);
  }
  return hn::GetLane(hn::SumOfLanes(df, sum));
}

// kRows rows of one head. q: their first elements; mix: [kRows, dim_cols].
void BlockImpl(const float* const* q, const float* keys, const float* values, int64_t head_dim, int64_t dim_cols,
               int64_t n_kv, int64_t kv_cols, float scale, float* scores, float* mix) {
  RowsTimesMatrix(q, keys, head_dim, kv_cols, scores);
  float sums[kRows];
  const float* rows[kRows];
  for (int r = 0; r < kRows; ++r) {
    sums[r] = ExpRow(scores + r * kv_cols, n_kv, kv_cols, scale);
    rows[r] = scores + r * kv_cols;
  }
  RowsTimesMatrix(rows, values, n_kv, dim_cols, mix);
  for (int r = 0; r < kRows; ++r) {
    const float inverse = 1.0f / sums[r];
    for (int64_t d = 0; d < head_dim; ++d) mix[r * dim_cols + d] *= inverse;
  }
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

constexpr int64_t kRows = 8;
// The widest vector of any target, in floats: rows padded to it are whole vectors and stay aligned.
int64_t Pad(int64_t n) { return (n + 15) / 16 * 16; }

}  // namespace

HWY_EXPORT(BlockImpl);

int64_t FullAttentionScratchBytes(int64_t n_heads, int64_t head_dim, int64_t max_kv, int n_threads) {
  const int64_t per_head = head_dim * Pad(max_kv) + max_kv * Pad(head_dim);
  return 4 * (n_heads * per_head + n_threads * kRows * (Pad(max_kv) + Pad(head_dim)));
}

void FullAttention(const FullAttentionArgs& args, ThreadPool& pool) {
  const int64_t kv_cols = Pad(args.n_kv), dim_cols = Pad(args.head_dim);
  const int64_t keys_size = args.head_dim * kv_cols, per_head = keys_size + args.n_kv * dim_cols;
  float* packed = static_cast<float*>(args.scratch);
  float* blocks = packed + args.n_heads * per_head;
  pool.For(args.n_heads, [&](int64_t h, int) {
    float* keys = packed + h * per_head;  // [head_dim, kv_cols]
    float* values = keys + keys_size;     // [n_kv, dim_cols]
    for (int64_t d = 0; d < args.head_dim; ++d)
      std::fill(keys + d * kv_cols + args.n_kv, keys + (d + 1) * kv_cols, 0.0f);
    for (int64_t j = 0; j < args.n_kv; ++j) {
      const int64_t from = j * args.kv_stride + h * args.head_dim;
      for (int64_t d = 0; d < args.head_dim; ++d) keys[d * kv_cols + j] = args.k[from + d];
      std::memcpy(values + j * dim_cols, args.v + from, static_cast<size_t>(args.head_dim) * 4);
      std::fill(values + j * dim_cols + args.head_dim, values + (j + 1) * dim_cols, 0.0f);
    }
  });
  const int64_t n_blocks = (args.n_q + kRows - 1) / kRows;
  pool.For(args.n_heads * n_blocks, [&](int64_t task, int worker) {
    const int64_t h = task / n_blocks, first = task % n_blocks * kRows;
    const int64_t n = std::min(kRows, args.n_q - first);
    const float* q[kRows];
    // A short block repeats its last row: every row is computed by the same instructions in any block.
    for (int64_t r = 0; r < kRows; ++r)
      q[r] = args.q + (first + std::min(r, n - 1)) * args.q_stride + h * args.head_dim;
    float* scores = blocks + worker * kRows * (kv_cols + dim_cols);
    float* mix = scores + kRows * kv_cols;
    const float* keys = packed + h * per_head;
    HWY_DYNAMIC_DISPATCH(BlockImpl)
    (q, keys, keys + keys_size, args.head_dim, dim_cols, args.n_kv, kv_cols, args.scale, scores, mix);
    for (int64_t r = 0; r < n; ++r) {
      std::memcpy(args.out + (first + r) * args.out_stride + h * args.head_dim, mix + r * dim_cols,
                  static_cast<size_t>(args.head_dim) * 4);
    }
  });
}

}  // namespace weir::cpu
#endif
