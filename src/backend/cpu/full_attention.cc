// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/full_attention.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/unroll.h"

#define HWY_WANT_AVX3_DL
// Arrays of vectors need vectors of a size known at compile time.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/full_attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// Query rows that share every loaded key and value, and columns of a panel of keys or values. Six rows times two
// vectors of columns are enough chains of sums to hide the latency of a multiply-add, and fit the registers.
constexpr int kRows = 6;
constexpr int64_t kPanel = 16;

// out[r, j] = sum_i rows[r][i] * matrix[i, j] for the columns of kVecs vectors from `vector` on.
template <int kVecs>
HWY_INLINE void TileTimesMatrix(const float* const* rows, const float* matrix, int64_t n_inner, int64_t n_cols,
                                int64_t vector, float* out) {
  const DF df;
  const int64_t n = static_cast<int64_t>(hn::Lanes(df));
  const float* columns[kVecs];
  for (int v = 0; v < kVecs; ++v) {
    const int64_t column = (vector + v) * n;
    columns[v] = matrix + column / kPanel * n_inner * kPanel + column % kPanel;
  }
  VF sums[kRows][kVecs];
  WEIR_UNROLL
  for (int r = 0; r < kRows; ++r) {
    WEIR_UNROLL
    for (int v = 0; v < kVecs; ++v) sums[r][v] = hn::Zero(df);
  }
  for (int64_t i = 0; i < n_inner; ++i) {
    VF m[kVecs];
    WEIR_UNROLL
    for (int v = 0; v < kVecs; ++v) m[v] = hn::Load(df, columns[v] + i * kPanel);
    WEIR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const VF factor = hn::Set(df, rows[r][i]);
      WEIR_UNROLL
      for (int v = 0; v < kVecs; ++v) sums[r][v] = hn::MulAdd(factor, m[v], sums[r][v]);
    }
  }
  WEIR_UNROLL
  for (int r = 0; r < kRows; ++r) {
    WEIR_UNROLL
    for (int v = 0; v < kVecs; ++v) hn::Store(sums[r][v], df, out + r * n_cols + (vector + v) * n);
  }
}

// The same for all n_cols columns, whole panels of [n_inner, kPanel].
HWY_INLINE void RowsTimesMatrix(const float* const* rows, const float* matrix, int64_t n_inner, int64_t n_cols,
                                float* out) {
  const int64_t n_vectors = n_cols / static_cast<int64_t>(hn::Lanes(DF()));
  int64_t vector = 0;
  for (; vector + 2 <= n_vectors; vector += 2) TileTimesMatrix<2>(rows, matrix, n_inner, n_cols, vector, out);
  if (vector < n_vectors) TileTimesMatrix<1>(rows, matrix, n_inner, n_cols, vector, out);
}

// e^x for x <= 0, with a relative error below 2e-7; zero below -87, where the result would leave the normal numbers.
// Half the instructions of Highway's, which also takes large numbers.
HWY_INLINE VF ExpBelowZero(VF x) {
  const DF df;
  const hn::RebindToSigned<DF> di;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the lowest bits.
  const VF round = hn::Set(df, 12582912.0f);
  const VF rounded = hn::MulAdd(x, hn::Set(df, 1.44269504f), round);
  const VF n = hn::Sub(rounded, round);
  VF r = hn::MulAdd(n, hn::Set(df, -0.693145751953125f), x);
  r = hn::MulAdd(n, hn::Set(df, -1.42860682030941723212e-6f), r);
  VF poly = hn::Set(df, 1.98527617e-4f);
  for (const float c : {1.39304355e-3f, 8.33336077e-3f, 4.16664854e-2f, 1.66666672e-1f, 0.5f}) {
    poly = hn::MulAdd(poly, r, hn::Set(df, c));
  }
  const VF power = hn::Add(hn::MulAdd(poly, hn::Mul(r, r), r), hn::Set(df, 1.0f));
  const VF y = hn::BitCast(df, hn::Add(hn::BitCast(di, power), hn::ShiftLeft<23>(hn::BitCast(di, rounded))));
  return hn::IfThenElseZero(hn::Ge(x, hn::Set(df, -87.0f)), y);
}

// Turns scores into exp(scale * (score - largest)) and returns the sum. Columns from n_kv on become zero.
HWY_INLINE float ExpRow(float* scores, int64_t n_kv, int64_t n_cols, float scale) {
  const DF df;
  const int64_t n = static_cast<int64_t>(hn::Lanes(df));
  // A negative scale would reverse the order, so scale before finding the largest.
  const VF factor = hn::Set(df, scale);
  VF most = hn::Set(df, -3e38f);
  int64_t whole = 0;
  for (; whole + n <= n_kv; whole += n) {
    const VF scaled = hn::Mul(hn::Load(df, scores + whole), factor);
    hn::Store(scaled, df, scores + whole);
    most = hn::Max(most, scaled);
  }
  for (int64_t j = whole; j < n_cols; ++j) scores[j] = j < n_kv ? scores[j] * scale : -3e38f;
  for (int64_t j = whole; j < n_cols; j += n) most = hn::Max(most, hn::Load(df, scores + j));
  const VF largest = hn::MaxOfLanes(df, most);
  VF sum = hn::Zero(df);
  for (int64_t j = 0; j < n_cols; j += n) {
    const VF e = ExpBelowZero(hn::Sub(hn::Load(df, scores + j), largest));
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

constexpr int64_t kRows = 6;
// Of keys and values, in floats: the widest vector of any target, so that panels are whole vectors and stay aligned.
constexpr int64_t kPanel = 16;
int64_t Pad(int64_t n) { return (n + kPanel - 1) / kPanel * kPanel; }

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
    // Panels of [head_dim, kPanel] for kPanel keys each, and of [n_kv, kPanel] for as many columns of the values.
    float* keys = packed + h * per_head;
    float* values = keys + keys_size;
    if (args.n_kv < kv_cols) std::fill_n(keys + keys_size - args.head_dim * kPanel, args.head_dim * kPanel, 0.0f);
    for (int64_t j = 0; j < args.n_kv; ++j) {
      const float* from = args.k + j * args.kv_stride + h * args.head_dim;
      float* to = keys + j / kPanel * args.head_dim * kPanel + j % kPanel;
      for (int64_t d = 0; d < args.head_dim; ++d) to[d * kPanel] = from[d];
    }
    for (int64_t d = 0; d < dim_cols; d += kPanel) {
      const int64_t n = std::min(kPanel, args.head_dim - d);
      const float* from = args.v + h * args.head_dim + d;
      float* to = values + d * args.n_kv;
      for (int64_t j = 0; j < args.n_kv; ++j, from += args.kv_stride, to += kPanel) {
        std::memcpy(to, from, static_cast<size_t>(n) * 4);
        std::fill(to + n, to + kPanel, 0.0f);
      }
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
