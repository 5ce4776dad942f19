// SPDX-License-Identifier: Apache-2.0
// SIMD code that all products share: a panel's vectors, and writing outputs; compiled once per target.
#if defined(WEIR_BACKEND_CPU_MATMUL_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_BACKEND_CPU_MATMUL_TILE_INL_H_
#undef WEIR_BACKEND_CPU_MATMUL_TILE_INL_H_
#else
#define WEIR_BACKEND_CPU_MATMUL_TILE_INL_H_
#endif

#include "backend/cpu/pack.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, kPanel>;
using VF = hn::Vec<DF>;
using DI = hn::RebindToSigned<DF>;
using VI = hn::Vec<DI>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF()));
constexpr int kVectors = kPanel / kLanes;  // vectors of a panel

// StoreColumns() for a panel's last columns, where fewer than a vector exist.
HWY_NOINLINE inline void StoreLastColumns(const ProductArgs& args, int64_t first, int64_t n_cols, float* y, VF value) {
  HWY_ALIGN float lanes[kLanes];
  hn::Store(value, DF(), lanes);
  for (int64_t c = 0; c < n_cols; ++c) {
    if (args.bias != nullptr) lanes[c] += args.bias[first + c];
    y[c] = args.accumulate ? lanes[c] + y[c] : lanes[c];
  }
}

// Adds bias and previous content in a fixed order and writes the columns that exist.
HWY_INLINE void StoreColumns(const ProductArgs& args, int64_t panel, int64_t row, int vector, VF value) {
  const DF df;
  const int64_t first = panel * kPanel + vector * kLanes;
  const int64_t n_cols = args.w->n_out() - args.first_panel * kPanel - first;
  float* y = args.y + row * args.y_stride + first;
  if (n_cols < kLanes) return StoreLastColumns(args, first, n_cols, y, value);
  if (args.bias != nullptr) value = hn::Add(value, hn::LoadU(df, args.bias + first));
  if (args.accumulate) value = hn::Add(value, hn::LoadU(df, y));
  hn::StoreU(value, df, y);
}

template <DType kType>
HWY_INLINE VF LoadPlain(const uint8_t* from) {
  const DF df;
  if constexpr (kType == DType::kF32) {
    return hn::LoadU(df, reinterpret_cast<const float*>(from));
  } else if constexpr (kType == DType::kF16) {
    const hn::Rebind<hwy::float16_t, DF> dh;
    return hn::PromoteTo(df, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from)));
  } else {
    const hn::Rebind<hwy::bfloat16_t, DF> db;
    return hn::PromoteTo(df, hn::LoadU(db, reinterpret_cast<const hwy::bfloat16_t*>(from)));
  }
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
