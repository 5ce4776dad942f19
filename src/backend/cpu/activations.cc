// SPDX-License-Identifier: Apache-2.0
// Activations rounded to int8, for products with weights of block formats, and to 14 bits, for plain ones.
#include <algorithm>
#include <limits>

#include "backend/cpu/weights.h"

#define HWY_WANT_AVX3_DL
// Arrays of vectors need vectors of a size known at compile time. SSSE3 without SSE4 is too rare to be worth the
// compile time.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/activations.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// After foreach_target.h: compiled once per target.
#include "backend/cpu/matmul_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What a block is rounded by: the largest magnitude, NaN if a value is not finite.
HWY_INLINE float LargestOf(const float* x) {
  const DF df;
  VF largest = hn::Zero(df), poison = hn::Zero(df);  // poison: NaN once a value is not finite
  for (int i = 0; i < kQ8Block; i += kLanes) {
    const VF v = hn::LoadU(df, x + i);
    largest = hn::Max(largest, hn::Abs(v));
    poison = hn::Add(poison, hn::Sub(v, v));
  }
  const bool finite = hn::GetLane(hn::SumOfLanes(df, poison)) == 0.0f;
  return finite ? hn::GetLane(hn::MaxOfLanes(df, largest)) : std::numeric_limits<float>::quiet_NaN();
}

// The same numbers as QuantizeRowQ8: one division per block, one rounding per value.
void RoundImpl(const float* x, int64_t n_blocks, ActBlock* out) {
  const DF df;
  const DI di;
  const hn::Rebind<int8_t, DF> di8;
  for (int64_t b = 0; b < n_blocks; ++b, x += kQ8Block) {
    ActBlock& block = out[b];
    const float max = LargestOf(x);
    if (!(max >= kQ8Smallest)) {
      block = ActBlock{};
      if (max != max) block.d = block.d_sum = max;
      continue;
    }
    block.d = max / 127.0f;
    const VF inverse = hn::Set(df, 127.0f / max);
    VI sums[2] = {hn::Zero(di), hn::Zero(di)};  // of the first and the last 16
    for (int i = 0; i < kQ8Block; i += kLanes) {
      const VI q = hn::NearestInt(hn::Mul(hn::LoadU(df, x + i), inverse));
      hn::StoreU(hn::DemoteTo(di8, q), di8, block.q + i);
      VI& sum = sums[i / 16];
      sum = hn::Add(sum, q);
    }
    const int32_t lo = hn::GetLane(hn::SumOfLanes(di, sums[0])), hi = hn::GetLane(hn::SumOfLanes(di, sums[1]));
    block.neg_sum = -(lo + hi);
    block.neg_sum_lo = -lo;
    block.d_sum = block.d * static_cast<float>(lo + hi);
  }
}

void RoundHalfsImpl(const float* x, int64_t n_in, HalfsBlock* out) {
  const DF df;
  const hn::Rebind<int16_t, DF> di16;
  float last[kQ8Block] = {};  // a block that the row does not fill
  for (int64_t k = 0; k < n_in; k += kQ8Block, ++out) {
    const float* from = x + k;
    if (n_in - k < kQ8Block) from = std::copy_n(from, n_in - k, last) - (n_in - k);
    const float max = LargestOf(from);
    if (!(max >= kQ8Smallest)) {
      *out = HalfsBlock{};
      if (max != max) out->d = max;
      continue;
    }
    out->d = max / static_cast<float>(kHalfsMax);
    const VF inverse = hn::Set(df, static_cast<float>(kHalfsMax) / max);
    for (int i = 0; i < kQ8Block; i += kLanes) {
      hn::StoreU(hn::DemoteTo(di16, hn::NearestInt(hn::Mul(hn::LoadU(df, from + i), inverse))), di16, out->q + i);
    }
  }
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {

HWY_EXPORT(RoundImpl);
HWY_EXPORT(RoundHalfsImpl);

void RoundActivations(const float* x, int64_t n_blocks, ActBlock* out) {
  HWY_DYNAMIC_DISPATCH(RoundImpl)(x, n_blocks, out);
}

void RoundHalfs(const float* x, int64_t n_in, HalfsBlock* out) { HWY_DYNAMIC_DISPATCH(RoundHalfsImpl)(x, n_in, out); }

}  // namespace weir::cpu
#endif
