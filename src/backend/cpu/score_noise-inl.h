// SPDX-License-Identifier: Apache-2.0
// The noise of votes (ops/score_noise.h) in vectors; compiled once per target.
#if defined(WEIR_BACKEND_CPU_SCORE_NOISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_BACKEND_CPU_SCORE_NOISE_INL_H_
#undef WEIR_BACKEND_CPU_SCORE_NOISE_INL_H_
#else
#define WEIR_BACKEND_CPU_SCORE_NOISE_INL_H_
#endif

#include "backend/cpu/attention-inl.h"
#include "ops/score_noise.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// -ln u of u in (0, 1), normal numbers; relative error below 3e-7.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V NegLog(D d, V u) {
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(di, u);
  // u = m 2^n, m in [sqrt(1/2), sqrt(2)).
  const auto n = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f3504f3)));
  const V f = hn::Sub(hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(n))), hn::Set(d, 1.0f));
  // ln(1 + f) / f, fitted to its relative error.
  V p = hn::Set(d, 8.7222435e-02f);
  p = hn::MulAdd(p, f, hn::Set(d, -1.4366788e-01f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.4952283e-01f));
  p = hn::MulAdd(p, f, hn::Set(d, -1.6562403e-01f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.9956833e-01f));
  p = hn::MulAdd(p, f, hn::Set(d, -2.5002074e-01f));
  p = hn::MulAdd(p, f, hn::Set(d, 3.3334187e-01f));
  p = hn::MulAdd(p, f, hn::Set(d, -4.9999988e-01f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  return hn::NegMulAdd(hn::ConvertTo(d, n), hn::Set(d, 0.69314718f), hn::Neg(hn::Mul(p, f)));
}

// -ln u of NoiseUniform(): `low` is the key's, with the slot's multiple of kNoiseStride added.
template <class DU, class VU = hn::Vec<DU>>
HWY_INLINE auto NegLogUniform(DU, VU low, VU high) {
  const DU du;
  const hn::RebindToFloat<DU> d;
  const hn::RebindToSigned<DU> di;
  VU x = hn::Xor(hn::Mul(hn::Xor(low, hn::ShiftRight<16>(low)), hn::Set(du, kNoiseMul1)), high);
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(du, kNoiseMul2));
  x = hn::ShiftRight<9>(hn::Xor(x, hn::ShiftRight<16>(x)));
  const auto counted = hn::ConvertTo(d, hn::BitCast(di, x));
  return NegLog(d, hn::Mul(hn::Add(counted, hn::Set(d, 0.5f)), hn::Set(d, 0x1p-23f)));
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
