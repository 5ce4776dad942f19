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

// Columns [column, column + width) of one head's matrix, and its gates.
struct DeltaColumns {
  const DeltaRuleArgs* args;
  int32_t head;
  int64_t column, width;
  const float *decay, *rate;  // [n_rows, n_v_heads]: g and b
  float* state;               // [d_k, width]
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

void GatesImpl(const DeltaRuleArgs& args, int64_t first_row, int64_t last_row, float* decay, float* rate) {
  for (int64_t r = first_row; r < last_row; ++r) {
    for (int32_t h = 0; h < args.n_v_heads; ++h) {
      const int64_t at = r * args.n_v_heads + h;
      const float z = args.alpha[at] + args.dt_bias[h];
      decay[at] = std::exp(args.a[h] * (z > 20 ? z : std::log1p(std::exp(z))));
      rate[at] = 1 / (1 + std::exp(-args.beta[at]));
    }
  }
}

// kVectors vectors wide. Two rows of the matrix at a time: one chain of additions a column would wait for itself.
template <int64_t kVectors>
void DeltaRows(const DeltaColumns& part) {
  const DF df;
  const DeltaRuleArgs& a = *part.args;
  constexpr int64_t kWidth = kVectors * kLanes;
  const int64_t d_k = a.d_k;
  for (int64_t r = 0; r < a.n_rows; ++r) {
    const int64_t at = r * a.n_v_heads + part.head;
    const float* const k = a.k + (r * a.n_k_heads + a.k_head(part.head)) * d_k;
    const float* const q = a.q + (r * a.n_k_heads + a.k_head(part.head)) * d_k;
    const VF g = hn::Set(df, part.decay[at]);
    VF even[kVectors], odd[kVectors], delta[kVectors];
    for (int64_t j = 0; j < kVectors; ++j) even[j] = odd[j] = hn::Zero(df);
    int64_t i = 0;
    for (; i + 2 <= d_k; i += 2) {
      const float* const s = part.state + i * kWidth;
      const VF k0 = hn::Set(df, k[i]), k1 = hn::Set(df, k[i + 1]);
      for (int64_t j = 0; j < kVectors; ++j) {
        even[j] = hn::MulAdd(k0, hn::LoadU(df, s + j * kLanes), even[j]);
        odd[j] = hn::MulAdd(k1, hn::LoadU(df, s + kWidth + j * kLanes), odd[j]);
      }
    }
    if (i < d_k) {
      const float* const s = part.state + i * kWidth;
      for (int64_t j = 0; j < kVectors; ++j) {
        even[j] = hn::MulAdd(hn::Set(df, k[i]), hn::LoadU(df, s + j * kLanes), even[j]);
      }
    }
    const VF b = hn::Set(df, part.rate[at]);
    const float* const v = a.v + at * a.d_v + part.column;
    for (int64_t j = 0; j < kVectors; ++j) {
      const VF known = hn::Mul(g, hn::Add(even[j], odd[j]));
      delta[j] = hn::Mul(b, hn::Sub(hn::LoadU(df, v + j * kLanes), known));
      even[j] = odd[j] = hn::Zero(df);
    }
    const auto next = [&](int64_t row, int64_t j) {
      float* const s = part.state + row * kWidth + j * kLanes;
      const VF value = hn::MulAdd(hn::Set(df, k[row]), delta[j], hn::Mul(g, hn::LoadU(df, s)));
      hn::StoreU(value, df, s);
      return value;
    };
    for (i = 0; i + 2 <= d_k; i += 2) {
      for (int64_t j = 0; j < kVectors; ++j) {
        even[j] = hn::MulAdd(hn::Set(df, q[i]), next(i, j), even[j]);
        odd[j] = hn::MulAdd(hn::Set(df, q[i + 1]), next(i + 1, j), odd[j]);
      }
    }
    if (i < d_k) {
      for (int64_t j = 0; j < kVectors; ++j) even[j] = hn::MulAdd(hn::Set(df, q[i]), next(i, j), even[j]);
    }
    float* const out = a.out + at * a.d_v + part.column;
    for (int64_t j = 0; j < kVectors; ++j) hn::StoreU(hn::Add(even[j], odd[j]), df, out + j * kLanes);
  }
}

// Any width, number by number.
void DeltaRowsPlain(const DeltaColumns& part) {
  const DeltaRuleArgs& a = *part.args;
  for (int64_t r = 0; r < a.n_rows; ++r) {
    const int64_t at = r * a.n_v_heads + part.head;
    const float* const k = a.k + (r * a.n_k_heads + a.k_head(part.head)) * a.d_k;
    const float* const q = a.q + (r * a.n_k_heads + a.k_head(part.head)) * a.d_k;
    const float g = part.decay[at];
    for (int64_t j = 0; j < part.width; ++j) {
      float known = 0, out = 0;
      for (int64_t i = 0; i < a.d_k; ++i) known += k[i] * part.state[i * part.width + j];
      const float delta = part.rate[at] * (a.v[at * a.d_v + part.column + j] - g * known);
      for (int64_t i = 0; i < a.d_k; ++i) {
        float& s = part.state[i * part.width + j];
        s = g * s + k[i] * delta;
        out += q[i] * s;
      }
      a.out[at * a.d_v + part.column + j] = out;
    }
  }
}

void DeltaImpl(const DeltaColumns& part) {
  if (part.width == 32 && 32 % kLanes == 0) return DeltaRows<std::max<int64_t>(1, 32 / kLanes)>(part);
  DeltaRowsPlain(part);
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {

HWY_EXPORT(ConvImpl);
HWY_EXPORT(GatesImpl);
HWY_EXPORT(DeltaImpl);

void CausalConv(const CausalConvArgs& args, ThreadPool& pool) {
  pool.For((args.n_channels + kConvChannels - 1) / kConvChannels, [&](int64_t task, int) {
    const int64_t first = task * kConvChannels;
    HWY_DYNAMIC_DISPATCH(ConvImpl)(args, first, std::min(args.n_channels, first + kConvChannels));
  });
}

void DeltaRule(const DeltaRuleArgs& args, ThreadPool& pool) {
  float* const decay = args.scratch;
  float* const rate = decay + args.n_rows * args.n_v_heads;
  constexpr int64_t kGateRows = 64;
  pool.For((args.n_rows + kGateRows - 1) / kGateRows, [&](int64_t task, int) {
    const int64_t first = task * kGateRows;
    HWY_DYNAMIC_DISPATCH(GatesImpl)(args, first, std::min(args.n_rows, first + kGateRows), decay, rate);
  });
  const int64_t width = DeltaStateWidth(args.d_v), n_parts = args.d_v / width;
  pool.For(args.n_v_heads * n_parts, [&](int64_t task, int) {
    const int32_t head = static_cast<int32_t>(task / n_parts);
    HWY_DYNAMIC_DISPATCH(DeltaImpl)
    ({&args, head, task % n_parts * width, width, decay, rate, args.state + task * args.d_k * width});
  });
}

}  // namespace weir::cpu
#endif
