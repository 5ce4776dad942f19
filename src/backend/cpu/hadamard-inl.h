// SPDX-License-Identifier: Apache-2.0
// SIMD version of ops/hadamard.h, with the reference's bits; compiled once per target.
#if defined(WEIR_BACKEND_CPU_HADAMARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_BACKEND_CPU_HADAMARD_INL_H_
#undef WEIR_BACKEND_CPU_HADAMARD_INL_H_
#else
#define WEIR_BACKEND_CPU_HADAMARD_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

#include "backend/cpu/unroll.h"
#include "ops/hadamard.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using DHadamard = hn::CappedTag<float, 16>;
using VHadamard = hn::Vec<DHadamard>;

// The other lane of every pair of lanes `kApart` apart.
template <int kApart>
HWY_INLINE VHadamard SwapLanes(VHadamard v) {
  [[maybe_unused]] constexpr int kLanes = hn::MaxLanes(DHadamard());
#if HWY_TARGET != HWY_SCALAR
  const DHadamard d;
  if constexpr (kApart == 1) return hn::Shuffle2301(v);
  if constexpr (kApart == 2) return hn::Shuffle1032(v);
  if constexpr (kApart > 2 && kApart == kLanes / 2) return hn::ConcatLowerUpper(d, v, v);
#if HWY_TARGET <= HWY_AVX3
  if constexpr (kApart == 4 && kLanes == 16) {
    v.raw = _mm512_shuffle_f32x4(v.raw, v.raw, _MM_SHUFFLE(2, 3, 0, 1));
    return v;
  }
#endif
#endif
  return v;
}

// Sums in the lower lane of every such pair, differences in the upper one. A product with a sign is exact.
template <int kApart>
HWY_INLINE VHadamard Butterfly(VHadamard v) {
  const DHadamard d;
  constexpr int64_t kSigns = kApart == 1 ? 0 : kApart == 2 ? 1 : kApart == 4 ? 2 : 3;
  HWY_ALIGN static constexpr float kSign[4][16] = {{1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
                                                   {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
                                                   {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
                                                   {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1}};
  return hn::MulAdd(v, hn::Load(d, kSign[kSigns]), SwapLanes<kApart>(v));
}

// The transform of kVectors vectors (a power of two) of consecutive elements among themselves, without its factor.
template <int kVectors>
HWY_INLINE void TransformVectors(VHadamard (&v)[kVectors]) {
  constexpr int64_t kLanes = hn::MaxLanes(DHadamard());
  WEIR_UNROLL
  for (int j = 0; j < kVectors; ++j) {
    if constexpr (kLanes > 1) v[j] = Butterfly<1>(v[j]);
    if constexpr (kLanes > 2) v[j] = Butterfly<2>(v[j]);
    if constexpr (kLanes > 4) v[j] = Butterfly<4>(v[j]);
    if constexpr (kLanes > 8) v[j] = Butterfly<8>(v[j]);
  }
  WEIR_UNROLL
  for (int apart = 1; apart < kVectors; apart *= 2) {
    WEIR_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      if ((j & apart) != 0) continue;
      const VHadamard a = v[j], b = v[j + apart];
      v[j] = hn::Add(a, b);
      v[j + apart] = hn::Sub(a, b);
    }
  }
}

// The sums and differences of elements `apart`, 2 * apart ... up to a block apart: what is left to do when parts of
// `apart` elements are transformed.
HWY_INLINE void JoinParts(float* x, int64_t n, int64_t apart) {
  const DHadamard d;
  constexpr int64_t kLanes = hn::MaxLanes(DHadamard());
  for (const int64_t block = HadamardBlock(n); apart < block; apart *= 2) {
    for (int64_t first = 0; first < n; first += 2 * apart) {
      for (int64_t i = first; i < first + apart; i += kLanes) {
        const VHadamard a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + apart);
        hn::StoreU(hn::Add(a, b), d, x + i);
        hn::StoreU(hn::Sub(a, b), d, x + i + apart);
      }
    }
  }
}

// In place. REQUIRES: n is a multiple of 32.
HWY_INLINE void Hadamard(float* x, int64_t n) {
  const DHadamard d;
  constexpr int kLanes = hn::MaxLanes(DHadamard());
  for (int64_t i = 0; i < n; i += 32) {
    VHadamard v[32 / kLanes];
    WEIR_UNROLL
    for (int j = 0; j < 32 / kLanes; ++j) v[j] = hn::LoadU(d, x + i + j * kLanes);
    TransformVectors(v);
    WEIR_UNROLL
    for (int j = 0; j < 32 / kLanes; ++j) hn::StoreU(v[j], d, x + i + j * kLanes);
  }
  JoinParts(x, n, 32);
  const auto factor = hn::Set(d, HadamardFactor(n));
  for (int64_t i = 0; i < n; i += kLanes) hn::StoreU(hn::Mul(hn::LoadU(d, x + i), factor), d, x + i);
}

}  // namespace
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
