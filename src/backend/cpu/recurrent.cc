// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/recurrent.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#define HWY_WANT_AVX3_DL
// Arrays of vectors need vectors of a size known at compile time.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/recurrent.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
//
#include "hwy/contrib/math/math-inl.h"

// What a worker takes at once.
#ifndef WEIR_CPU_RECURRENT_SHARED
#define WEIR_CPU_RECURRENT_SHARED
namespace weir::cpu {
constexpr int64_t kConvChannels = 256;

// Columns [column, column + width) of the matrix S of one head. Every row r decays it, adds in[r] delta^T and reads
// S^T out[r]:
//   the delta rule  delta = rate (v - S^T in)
//   Mamba-2         delta = rate v, and skip * v is added to what is read
struct HeadColumns {
  int64_t n_rows;
  const float *in, *out, *v;    // of the head's first row: [n_in] twice, [width]
  int64_t in_stride, v_stride;  // between rows
  int64_t n_in, width;          // S is [n_in, width]
  const float *decay, *rate;    // of the head's first row
  int64_t gate_stride;          // between rows
  float skip;
  float* state;
  float* y;  // [width], rows v_stride apart
};
}  // namespace weir::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));

HWY_INLINE VF Silu(VF x) {
  const DF df;
  const VF floor = hn::Set(df, -88.0f);  // exp(88) is finite
  const VF e = hn::Exp(df, hn::Neg(hn::Max(x, floor)));
  return hn::IfThenZeroElse(hn::Lt(x, floor), hn::Div(x, hn::Add(hn::Set(df, 1.0f), e)));
}

HWY_INLINE VF Sum(const CausalConvArgs& args, const float* const* rows, int64_t c) {
  const DF df;
  VF sum = args.bias == nullptr ? hn::Zero(df) : hn::LoadU(df, args.bias + c);
  for (int64_t t = 0; t < args.n_taps; ++t) {
    sum = hn::MulAdd(hn::LoadU(df, args.w + t * args.n_channels + c), hn::LoadU(df, rows[t] + c), sum);
  }
  return args.silu ? Silu(sum) : sum;
}

HWY_INLINE float SumOne(const CausalConvArgs& args, const float* const* rows, int64_t c) {
  float sum = args.bias == nullptr ? 0 : args.bias[c];
  for (int64_t t = 0; t < args.n_taps; ++t) sum += args.w[t * args.n_channels + c] * rows[t][c];
  return args.silu ? sum / (1 + std::exp(-sum)) : sum;
}

// Channels [first, last), at most kConvChannels. From the last row to the first, so that y may be x.
void ConvImpl(const CausalConvArgs& args, int64_t first, int64_t last) {
  const DF df;
  const int64_t n_before = args.n_taps - 1, n_channels = args.n_channels;
  const size_t n_bytes = static_cast<size_t>(last - first) * sizeof(float);
  // Row r >= -n_before of the stream, with those before the call in the state.
  const auto row = [&](int64_t r) {
    return r < 0 ? args.state + (n_before + r) * n_channels : args.x + r * n_channels;
  };
  float next[kMaxConvTaps][kConvChannels];
  for (int64_t t = 0; t < n_before; ++t) std::memcpy(next[t], row(args.n_rows - n_before + t) + first, n_bytes);
  for (int64_t r = args.n_rows - 1; r >= 0; --r) {
    const float* rows[kMaxConvTaps];
    for (int64_t t = 0; t < args.n_taps; ++t) rows[t] = row(r - n_before + t);
    float* const y = args.y + r * n_channels;
    int64_t c = first;
    for (; c + kLanes <= last; c += kLanes) hn::StoreU(Sum(args, rows, c), df, y + c);
    for (; c < last; ++c) y[c] = SumOne(args, rows, c);
  }
  for (int64_t t = 0; t < n_before; ++t) std::memcpy(args.state + t * n_channels + first, next[t], n_bytes);
}

float Softplus(float z) { return z > 20 ? z : std::log1p(std::exp(z)); }

// kVectors vectors wide. Two rows of the matrix at a time: one chain of additions a column would wait for itself.
template <bool kDelta, int64_t kVectors>
void ScanRows(const HeadColumns& h) {
  const DF df;
  constexpr int64_t kWidth = kVectors * kLanes;
  for (int64_t r = 0; r < h.n_rows; ++r) {
    const float* const k = h.in + r * h.in_stride;
    const float* const q = h.out + r * h.in_stride;
    const float* const v = h.v + r * h.v_stride;
    const VF g = hn::Set(df, h.decay[r * h.gate_stride]), b = hn::Set(df, h.rate[r * h.gate_stride]);
    VF even[kVectors], odd[kVectors], delta[kVectors];
    for (int64_t j = 0; j < kVectors; ++j) even[j] = odd[j] = hn::Zero(df);
    int64_t i = 0;
    if constexpr (kDelta) {
      for (; i + 2 <= h.n_in; i += 2) {
        const float* const s = h.state + i * kWidth;
        const VF k0 = hn::Set(df, k[i]), k1 = hn::Set(df, k[i + 1]);
        for (int64_t j = 0; j < kVectors; ++j) {
          even[j] = hn::MulAdd(k0, hn::LoadU(df, s + j * kLanes), even[j]);
          odd[j] = hn::MulAdd(k1, hn::LoadU(df, s + kWidth + j * kLanes), odd[j]);
        }
      }
      if (i < h.n_in) {
        const float* const s = h.state + i * kWidth;
        for (int64_t j = 0; j < kVectors; ++j) {
          even[j] = hn::MulAdd(hn::Set(df, k[i]), hn::LoadU(df, s + j * kLanes), even[j]);
        }
      }
    }
    for (int64_t j = 0; j < kVectors; ++j) {
      VF value = hn::LoadU(df, v + j * kLanes);
      if constexpr (kDelta) value = hn::Sub(value, hn::Mul(g, hn::Add(even[j], odd[j])));
      delta[j] = hn::Mul(b, value);
      even[j] = odd[j] = hn::Zero(df);
    }
    const auto next = [&](int64_t row, int64_t j) {
      float* const s = h.state + row * kWidth + j * kLanes;
      const VF value = hn::MulAdd(hn::Set(df, k[row]), delta[j], hn::Mul(g, hn::LoadU(df, s)));
      hn::StoreU(value, df, s);
      return value;
    };
    for (i = 0; i + 2 <= h.n_in; i += 2) {
      for (int64_t j = 0; j < kVectors; ++j) {
        even[j] = hn::MulAdd(hn::Set(df, q[i]), next(i, j), even[j]);
        odd[j] = hn::MulAdd(hn::Set(df, q[i + 1]), next(i + 1, j), odd[j]);
      }
    }
    if (i < h.n_in) {
      for (int64_t j = 0; j < kVectors; ++j) even[j] = hn::MulAdd(hn::Set(df, q[i]), next(i, j), even[j]);
    }
    float* const y = h.y + r * h.v_stride;
    for (int64_t j = 0; j < kVectors; ++j) {
      VF sum = hn::Add(even[j], odd[j]);
      if constexpr (!kDelta) sum = hn::MulAdd(hn::Set(df, h.skip), hn::LoadU(df, v + j * kLanes), sum);
      hn::StoreU(sum, df, y + j * kLanes);
    }
  }
}

// Any width, number by number.
template <bool kDelta>
void ScanRowsPlain(const HeadColumns& h) {
  for (int64_t r = 0; r < h.n_rows; ++r) {
    const float* const k = h.in + r * h.in_stride;
    const float* const q = h.out + r * h.in_stride;
    const float g = h.decay[r * h.gate_stride], b = h.rate[r * h.gate_stride];
    for (int64_t j = 0; j < h.width; ++j) {
      const float v = h.v[r * h.v_stride + j];
      float known = 0, sum = 0;
      if constexpr (kDelta) {
        for (int64_t i = 0; i < h.n_in; ++i) known += k[i] * h.state[i * h.width + j];
      }
      const float delta = b * (v - g * known);
      for (int64_t i = 0; i < h.n_in; ++i) {
        float& s = h.state[i * h.width + j];
        s = g * s + k[i] * delta;
        sum += q[i] * s;
      }
      h.y[r * h.v_stride + j] = kDelta ? sum : sum + h.skip * v;
    }
  }
}

template <bool kDelta>
void ScanImpl(const HeadColumns& h) {
  if (h.width == 32 && 32 % kLanes == 0) return ScanRows<kDelta, std::max<int64_t>(1, 32 / kLanes)>(h);
  if (h.width == 16 && 16 % kLanes == 0) return ScanRows<kDelta, std::max<int64_t>(1, 16 / kLanes)>(h);
  if (h.width == 8 && 8 % kLanes == 0) return ScanRows<kDelta, std::max<int64_t>(1, 8 / kLanes)>(h);
  ScanRowsPlain<kDelta>(h);
}
void DeltaImpl(const HeadColumns& h) { ScanImpl<true>(h); }
void SsmImpl(const HeadColumns& h) { ScanImpl<false>(h); }

void DeltaGatesImpl(const DeltaRuleArgs& args, int64_t first_row, int64_t last_row, float* decay, float* rate) {
  for (int64_t r = first_row; r < last_row; ++r) {
    for (int32_t h = 0; h < args.n_v_heads; ++h) {
      const int64_t at = r * args.n_v_heads + h;
      decay[at] = std::exp(args.a[h] * Softplus(args.alpha[at] + args.dt_bias[h]));
      rate[at] = 1 / (1 + std::exp(-args.beta[at]));
    }
  }
}

void SsmGatesImpl(const SsmScanArgs& args, int64_t first_row, int64_t last_row, float* decay, float* rate) {
  for (int64_t r = first_row; r < last_row; ++r) {
    for (int32_t h = 0; h < args.n_heads; ++h) {
      const int64_t at = r * args.n_heads + h;
      rate[at] = Softplus(args.dt[at] + args.dt_bias[h]);
      decay[at] = std::exp(args.a[h] * rate[at]);
    }
  }
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {

HWY_EXPORT(ConvImpl);
HWY_EXPORT(DeltaGatesImpl);
HWY_EXPORT(SsmGatesImpl);
HWY_EXPORT(DeltaImpl);
HWY_EXPORT(SsmImpl);

void CausalConv(const CausalConvArgs& args, ThreadPool& pool) {
  pool.For((args.n_channels + kConvChannels - 1) / kConvChannels, [&](int64_t task, int) {
    const int64_t first = task * kConvChannels;
    HWY_DYNAMIC_DISPATCH(ConvImpl)(args, first, std::min(args.n_channels, first + kConvChannels));
  });
}

// Rows of one task that computes gates.
constexpr int64_t kGateRows = 64;

void DeltaRule(const DeltaRuleArgs& args, ThreadPool& pool) {
  const int64_t n_heads = args.n_v_heads, d_v = args.d_v;
  float* const decay = args.scratch;
  float* const rate = decay + args.n_rows * n_heads;
  pool.For((args.n_rows + kGateRows - 1) / kGateRows, [&](int64_t task, int) {
    const int64_t first = task * kGateRows;
    HWY_DYNAMIC_DISPATCH(DeltaGatesImpl)(args, first, std::min(args.n_rows, first + kGateRows), decay, rate);
  });
  const int64_t width = StateBlockWidth(d_v), n_parts = d_v / width;
  pool.For(n_heads * n_parts, [&](int64_t task, int) {
    const int64_t head = task / n_parts, column = task % n_parts * width;
    const int64_t in = args.k_head(static_cast<int32_t>(head)) * int64_t{args.d_k};
    HWY_DYNAMIC_DISPATCH(DeltaImpl)
    ({.n_rows = args.n_rows,
      .in = args.k + in,
      .out = args.q + in,
      .v = args.v + head * d_v + column,
      .in_stride = int64_t{args.n_k_heads} * args.d_k,
      .v_stride = n_heads * d_v,
      .n_in = args.d_k,
      .width = width,
      .decay = decay + head,
      .rate = rate + head,
      .gate_stride = n_heads,
      .skip = 0,
      .state = args.state + task * args.d_k * width,
      .y = args.out + head * d_v + column});
  });
}

void SsmScan(const SsmScanArgs& args, ThreadPool& pool) {
  const int64_t n_heads = args.n_heads, d_head = args.d_head;
  float* const decay = args.scratch;
  float* const rate = decay + args.n_rows * n_heads;
  pool.For((args.n_rows + kGateRows - 1) / kGateRows, [&](int64_t task, int) {
    const int64_t first = task * kGateRows;
    HWY_DYNAMIC_DISPATCH(SsmGatesImpl)(args, first, std::min(args.n_rows, first + kGateRows), decay, rate);
  });
  const int64_t width = StateBlockWidth(d_head), n_parts = d_head / width;
  pool.For(n_heads * n_parts, [&](int64_t task, int) {
    const int64_t head = task / n_parts, column = task % n_parts * width;
    const int64_t in = args.group(static_cast<int32_t>(head)) * int64_t{args.d_state};
    HWY_DYNAMIC_DISPATCH(SsmImpl)
    ({.n_rows = args.n_rows,
      .in = args.b + in,
      .out = args.c + in,
      .v = args.x + head * d_head + column,
      .in_stride = int64_t{args.n_groups} * args.d_state,
      .v_stride = n_heads * d_head,
      .n_in = args.d_state,
      .width = width,
      .decay = decay + head,
      .rate = rate + head,
      .gate_stride = n_heads,
      .skip = args.d[head],
      .state = args.state + task * args.d_state * width,
      .y = args.out + head * d_head + column});
  });
}

}  // namespace weir::cpu
#endif
