// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#define HWY_WANT_AVX3_DL
// Arrays of vectors need vectors of a size known at compile time.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/elementwise.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
//
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

void RmsNormImpl(const float* x, const float* w, float* y, int64_t dim, float eps) {
  const DF df;
  const int64_t n = static_cast<int64_t>(hn::Lanes(df));
  // Four sums: a single chain of additions would stall on its own latency.
  VF sums[4] = {hn::Zero(df), hn::Zero(df), hn::Zero(df), hn::Zero(df)};
  int64_t i = 0;
  for (; i + 4 * n <= dim; i += 4 * n) {
    for (int j = 0; j < 4; ++j) {
      const VF v = hn::LoadU(df, x + i + j * n);
      sums[j] = hn::MulAdd(v, v, sums[j]);
    }
  }
  for (; i + n <= dim; i += n) {
    const VF v = hn::LoadU(df, x + i);
    sums[0] = hn::MulAdd(v, v, sums[0]);
  }
  double sum = hn::GetLane(hn::SumOfLanes(df, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
  for (int64_t k = i; k < dim; ++k) sum += static_cast<double>(x[k]) * x[k];
  const float inverse = static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(dim) + eps));
  const VF scale = hn::Set(df, inverse);
  for (i = 0; i + n <= dim; i += n) {
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(df, x + i), scale), hn::LoadU(df, w + i)), df, y + i);
  }
  for (; i < dim; ++i) y[i] = x[i] * inverse * w[i];
}

// Sum of f(x) over a row, with four chains of additions.
template <typename F>
HWY_INLINE double RowSum(const float* x, int64_t dim, const F& f) {
  const DF df;
  const int64_t n = static_cast<int64_t>(hn::Lanes(df));
  VF sums[4] = {hn::Zero(df), hn::Zero(df), hn::Zero(df), hn::Zero(df)};
  int64_t i = 0;
  for (; i + 4 * n <= dim; i += 4 * n) {
    for (int j = 0; j < 4; ++j) sums[j] = hn::Add(sums[j], f(hn::LoadU(df, x + i + j * n)));
  }
  for (; i + n <= dim; i += n) sums[0] = hn::Add(sums[0], f(hn::LoadU(df, x + i)));
  double sum = hn::GetLane(hn::SumOfLanes(df, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
  for (; i < dim; ++i) sum += hn::GetLane(f(hn::Set(df, x[i])));
  return sum;
}

void LayerNormImpl(const float* x, const float* w, const float* b, float* y, int64_t dim, float eps) {
  const DF df;
  const int64_t n = static_cast<int64_t>(hn::Lanes(df));
  const float mean = static_cast<float>(RowSum(x, dim, [](VF v) { return v; }) / static_cast<double>(dim));
  const VF centre = hn::Set(df, mean);
  const double squares = RowSum(x, dim, [centre](VF v) {
    const VF d = hn::Sub(v, centre);
    return hn::Mul(d, d);
  });
  const float inverse = static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(dim) + eps));
  const VF scale = hn::Set(df, inverse);
  int64_t i = 0;
  for (; i + n <= dim; i += n) {
    const VF unit = hn::Mul(hn::Sub(hn::LoadU(df, x + i), centre), scale);
    hn::StoreU(hn::Add(hn::Mul(unit, hn::LoadU(df, w + i)), hn::LoadU(df, b + i)), df, y + i);
  }
  for (; i < dim; ++i) y[i] = (x[i] - mean) * inverse * w[i] + b[i];
}

// x / (1 + exp(-z))
HWY_INLINE VF Gated(VF x, VF z) {
  const DF df;
  // Below -88, where exp(-z) nears its overflow, the result is less than 1e-36 of x in magnitude: zero.
  const VF floor = hn::Set(df, -88.0f);
  const VF e = hn::Exp(df, hn::Neg(hn::Max(z, floor)));
  return hn::IfThenZeroElse(hn::Lt(z, floor), hn::Div(x, hn::Add(hn::Set(df, 1.0f), e)));
}

HWY_INLINE VF QuickGelu(VF x) { return Gated(x, hn::Mul(x, hn::Set(DF(), 1.702f))); }

// (1 + tanh u) / 2 = 1 / (1 + exp(-2 u)), which has no cancellation.
HWY_INLINE VF TanhGelu(VF x) {
  const DF df;
  const VF slope = hn::MulAdd(hn::Mul(x, x), hn::Set(df, 2 * 0.79788456f * 0.044715f), hn::Set(df, 2 * 0.79788456f));
  return Gated(x, hn::Mul(x, slope));
}

// 0.5 x (1 + erf(x / sqrt 2)) with Abramowitz and Stegun 7.1.26: erf's error is below 1.5e-7.
HWY_INLINE VF ErfGelu(VF x) {
  const DF df;
  const VF one = hn::Set(df, 1.0f);
  const VF z = hn::Mul(hn::Abs(x), hn::Set(df, 0.70710678f));
  const VF t = hn::Div(one, hn::MulAdd(hn::Set(df, 0.3275911f), z, one));
  VF poly = hn::Set(df, 1.061405429f);
  for (const float c : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f})
    poly = hn::MulAdd(poly, t, hn::Set(df, c));
  const VF tail = hn::Mul(hn::Mul(poly, t), hn::Exp(df, hn::Neg(hn::Mul(z, z))));  // 1 - erf(z)
  const VF half = hn::Mul(hn::Set(df, 0.5f), x);
  // Below zero 1 + erf(x) is the tail itself: no cancellation.
  return hn::Mul(half, hn::IfThenElse(hn::Lt(x, hn::Zero(df)), tail, hn::Sub(hn::Set(df, 2.0f), tail)));
}

template <typename F>
HWY_INLINE void Map(const float* x, float* y, int64_t n_values, const F& f) {
  const DF df;
  const int64_t n = static_cast<int64_t>(hn::Lanes(df));
  int64_t i = 0;
  for (; i + n <= n_values; i += n) hn::StoreU(f(hn::LoadU(df, x + i)), df, y + i);
  if (i == n_values) return;
  HWY_ALIGN float in[hn::MaxLanes(df)] = {}, out[hn::MaxLanes(df)];
  const size_t bytes = static_cast<size_t>(n_values - i) * sizeof(float);
  std::memcpy(in, x + i, bytes);
  hn::Store(f(hn::Load(df, in)), df, out);
  std::memcpy(y + i, out, bytes);
}

void GeluImpl(GeluKind kind, const float* x, float* y, int64_t n_values) {
  switch (kind) {
    case GeluKind::kErf:
      return Map(x, y, n_values, [](VF v) { return ErfGelu(v); });
    case GeluKind::kQuick:
      return Map(x, y, n_values, [](VF v) { return QuickGelu(v); });
    case GeluKind::kTanh:
      return Map(x, y, n_values, [](VF v) { return TanhGelu(v); });
  }
}

void ReluImpl(const float* x, float* y, int64_t n_values) {
  const DF df;
  Map(x, y, n_values, [df](VF v) { return hn::IfThenZeroElse(hn::Lt(v, hn::Zero(df)), v); });
}

void ClampImpl(float low, float high, const float* x, float* y, int64_t n_values) {
  const DF df;
  const VF low_v = hn::Set(df, low), high_v = hn::Set(df, high);
  Map(x, y, n_values, [=](VF v) { return hn::IfThenElse(hn::Eq(v, v), hn::Max(hn::Min(v, high_v), low_v), v); });
}

void SoftCapImpl(float cap, const float* x, float* y, int64_t n_values) {
  const DF df;
  const VF cap_v = hn::Set(df, cap), inverse = hn::Set(df, 1.0f / cap), limit = hn::Set(df, 15.0f);
  Map(x, y, n_values, [=](VF v) {
    // Above 15, tanh is 1 in this precision, and the approximation does not handle infinities.
    const VF t = hn::Max(hn::Min(hn::Mul(v, inverse), limit), hn::Neg(limit));
    return hn::IfThenElse(hn::Eq(v, v), hn::Mul(cap_v, hn::Tanh(DF(), t)), v);
  });
}

// y = f(gate, up)
template <typename F>
HWY_INLINE void MapTwo(const float* gate, const float* up, float* y, int64_t n_values, const F& f) {
  const DF df;
  const int64_t n = static_cast<int64_t>(hn::Lanes(df));
  int64_t i = 0;
  for (; i + n <= n_values; i += n) hn::StoreU(f(hn::LoadU(df, gate + i), hn::LoadU(df, up + i)), df, y + i);
  if (i == n_values) return;
  // The remainder takes the same path in a padded vector: a value's bits must not depend on its index.
  HWY_ALIGN float g[hn::MaxLanes(df)] = {}, u[hn::MaxLanes(df)] = {}, out[hn::MaxLanes(df)];
  const size_t bytes = static_cast<size_t>(n_values - i) * sizeof(float);
  std::memcpy(g, gate + i, bytes);
  std::memcpy(u, up + i, bytes);
  hn::Store(f(hn::Load(df, g), hn::Load(df, u)), df, out);
  std::memcpy(y + i, out, bytes);
}

void SwiGluImpl(const float* gate, const float* up, float* y, int64_t n_values) {
  MapTwo(gate, up, y, n_values, [](VF g, VF u) { return hn::Mul(Gated(g, g), u); });
}

void ClampedSwiGluImpl(float alpha, float limit, const float* gate, const float* up, float* y, int64_t n_values) {
  const DF df;
  const VF alpha_v = hn::Set(df, alpha), top = hn::Set(df, limit), one = hn::Set(df, 1.0f);
  MapTwo(gate, up, y, n_values, [=](VF gate_v, VF up_v) {
    // Min and Max may turn a NaN into a number.
    const VF g = hn::IfThenElse(hn::Gt(gate_v, top), top, gate_v);
    const VF below = hn::IfThenElse(hn::Gt(up_v, top), top, up_v);
    const VF u = hn::IfThenElse(hn::Lt(below, hn::Neg(top)), hn::Neg(top), below);
    return hn::Mul(Gated(g, hn::Mul(alpha_v, g)), hn::Add(u, one));
  });
}

void GeGluImpl(const float* gate, const float* up, float* y, int64_t n_values) {
  MapTwo(gate, up, y, n_values, [](VF g, VF u) { return hn::Mul(TanhGelu(g), u); });
}

void SigmoidGateImpl(const float* gate, const float* x, float* y, int64_t n_values) {
  MapTwo(gate, x, y, n_values, [](VF g, VF v) { return Gated(v, g); });
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {

HWY_EXPORT(RmsNormImpl);
HWY_EXPORT(LayerNormImpl);
HWY_EXPORT(GeluImpl);
HWY_EXPORT(ReluImpl);
HWY_EXPORT(ClampImpl);
HWY_EXPORT(SwiGluImpl);
HWY_EXPORT(ClampedSwiGluImpl);
HWY_EXPORT(GeGluImpl);
HWY_EXPORT(SoftCapImpl);
HWY_EXPORT(SigmoidGateImpl);

// Values of one task: some microseconds of work.
constexpr int64_t kTaskValues = 8192;

void RmsNorm(const RmsNormArgs& args, ThreadPool& pool) {
  const int64_t rows = std::max<int64_t>(1, kTaskValues / std::max<int64_t>(1, args.dim));
  pool.For((args.n_rows + rows - 1) / rows, [&](int64_t task, int) {
    for (int64_t r = task * rows; r < std::min(args.n_rows, (task + 1) * rows); ++r) {
      const float* const w = args.w + r % args.n_weights * args.dim;
      HWY_DYNAMIC_DISPATCH(RmsNormImpl)(args.x + r * args.dim, w, args.y + r * args.dim, args.dim, args.eps);
    }
  });
}

void LayerNorm(const LayerNormArgs& args, ThreadPool& pool) {
  const int64_t rows = std::max<int64_t>(1, kTaskValues / std::max<int64_t>(1, args.dim));
  pool.For((args.n_rows + rows - 1) / rows, [&](int64_t task, int) {
    for (int64_t r = task * rows; r < std::min(args.n_rows, (task + 1) * rows); ++r) {
      HWY_DYNAMIC_DISPATCH(LayerNormImpl)
      (args.x + r * args.dim, args.w, args.b, args.y + r * args.dim, args.dim, args.eps);
    }
  });
}

void Gelu(const GeluArgs& args, ThreadPool& pool) {
  pool.For((args.n + kTaskValues - 1) / kTaskValues, [&](int64_t task, int) {
    const int64_t from = task * kTaskValues;
    HWY_DYNAMIC_DISPATCH(GeluImpl)
    (args.kind, args.x + from, args.y + from, std::min(kTaskValues, args.n - from));
  });
}

void Relu(const ReluArgs& args, ThreadPool& pool) {
  pool.For((args.n + kTaskValues - 1) / kTaskValues, [&](int64_t task, int) {
    const int64_t from = task * kTaskValues;
    HWY_DYNAMIC_DISPATCH(ReluImpl)(args.x + from, args.y + from, std::min(kTaskValues, args.n - from));
  });
}

void Clamp(const ClampArgs& args, ThreadPool& pool) {
  pool.For((args.n + kTaskValues - 1) / kTaskValues, [&](int64_t task, int) {
    const int64_t from = task * kTaskValues;
    HWY_DYNAMIC_DISPATCH(ClampImpl)
    (args.low, args.high, args.x + from, args.y + from, std::min(kTaskValues, args.n - from));
  });
}

void SwiGlu(const SwiGluArgs& args, ThreadPool& pool) {
  pool.For((args.n + kTaskValues - 1) / kTaskValues, [&](int64_t task, int) {
    const int64_t from = task * kTaskValues;
    HWY_DYNAMIC_DISPATCH(SwiGluImpl)
    (args.gate + from, args.up + from, args.y + from, std::min(kTaskValues, args.n - from));
  });
}

void ClampedSwiGlu(const ClampedSwiGluArgs& args, ThreadPool& pool) {
  pool.For((args.n + kTaskValues - 1) / kTaskValues, [&](int64_t task, int) {
    const int64_t from = task * kTaskValues;
    HWY_DYNAMIC_DISPATCH(ClampedSwiGluImpl)
    (args.alpha, args.limit, args.gate + from, args.up + from, args.y + from, std::min(kTaskValues, args.n - from));
  });
}

void GeGlu(const GeGluArgs& args, ThreadPool& pool) {
  pool.For((args.n + kTaskValues - 1) / kTaskValues, [&](int64_t task, int) {
    const int64_t from = task * kTaskValues;
    HWY_DYNAMIC_DISPATCH(GeGluImpl)
    (args.gate + from, args.up + from, args.y + from, std::min(kTaskValues, args.n - from));
  });
}

void SigmoidGate(const SigmoidGateArgs& args, ThreadPool& pool) {
  pool.For((args.n + kTaskValues - 1) / kTaskValues, [&](int64_t task, int) {
    const int64_t from = task * kTaskValues;
    HWY_DYNAMIC_DISPATCH(SigmoidGateImpl)
    (args.gate + from, args.x + from, args.y + from, std::min(kTaskValues, args.n - from));
  });
}

void SoftCap(const SoftCapArgs& args, ThreadPool& pool) {
  pool.For((args.n + kTaskValues - 1) / kTaskValues, [&](int64_t task, int) {
    const int64_t from = task * kTaskValues;
    HWY_DYNAMIC_DISPATCH(SoftCapImpl)
    (args.cap, args.x + from, args.y + from, std::min(kTaskValues, args.n - from));
  });
}

}  // namespace weir::cpu
#endif
