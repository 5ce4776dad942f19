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
  // Four sums: one chain of additions would wait for itself.
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

HWY_INLINE VF Silu(VF z, VF up) {
  const DF df;
  // Below -88, where exp(-z) nears its overflow, silu is less than 1e-36 in magnitude: zero.
  const VF floor = hn::Set(df, -88.0f);
  const VF e = hn::Exp(df, hn::Neg(hn::Max(z, floor)));
  const VF silu = hn::Div(z, hn::Add(hn::Set(df, 1.0f), e));
  return hn::Mul(hn::IfThenZeroElse(hn::Lt(z, floor), silu), up);
}

void SwiGluImpl(const float* gate, const float* up, float* y, int64_t n_values) {
  const DF df;
  const int64_t n = static_cast<int64_t>(hn::Lanes(df));
  int64_t i = 0;
  for (; i + n <= n_values; i += n) hn::StoreU(Silu(hn::LoadU(df, gate + i), hn::LoadU(df, up + i)), df, y + i);
  if (i == n_values) return;
  // The rest takes the same path in a padded vector: a value's bits must not depend on where it stands.
  HWY_ALIGN float g[hn::MaxLanes(df)] = {}, u[hn::MaxLanes(df)] = {}, out[hn::MaxLanes(df)];
  const size_t bytes = static_cast<size_t>(n_values - i) * sizeof(float);
  std::memcpy(g, gate + i, bytes);
  std::memcpy(u, up + i, bytes);
  hn::Store(Silu(hn::Load(df, g), hn::Load(df, u)), df, out);
  std::memcpy(y + i, out, bytes);
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {

HWY_EXPORT(RmsNormImpl);
HWY_EXPORT(SwiGluImpl);

// Values of one task: some microseconds of work.
constexpr int64_t kTaskValues = 8192;

void RmsNorm(const RmsNormArgs& args, ThreadPool& pool) {
  const int64_t rows = std::max<int64_t>(1, kTaskValues / std::max<int64_t>(1, args.dim));
  pool.For((args.n_rows + rows - 1) / rows, [&](int64_t task, int) {
    for (int64_t r = task * rows; r < std::min(args.n_rows, (task + 1) * rows); ++r) {
      HWY_DYNAMIC_DISPATCH(RmsNormImpl)(args.x + r * args.dim, args.w, args.y + r * args.dim, args.dim, args.eps);
    }
  });
}

void SwiGlu(const SwiGluArgs& args, ThreadPool& pool) {
  pool.For((args.n + kTaskValues - 1) / kTaskValues, [&](int64_t task, int) {
    const int64_t from = task * kTaskValues;
    HWY_DYNAMIC_DISPATCH(SwiGluImpl)
    (args.gate + from, args.up + from, args.y + from, std::min(kTaskValues, args.n - from));
  });
}

}  // namespace weir::cpu
#endif
