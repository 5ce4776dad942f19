// SPDX-License-Identifier: Apache-2.0
// SIMD pieces shared by the attention and slot kernels; compiled once per target.
#if defined(WEIR_BACKEND_CPU_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_BACKEND_CPU_ATTENTION_INL_H_
#undef WEIR_BACKEND_CPU_ATTENTION_INL_H_
#else
#define WEIR_BACKEND_CPU_ATTENTION_INL_H_
#endif

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

#include "backend/cpu/attention_kernels.h"
#include "backend/cpu/transformed_slots-inl.h"
#include "ops/attention.h"
#include "ops/kv_slots.h"
#include "quant/dtype.h"
#include "quant/q8_0.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A head is a multiple of 8 elements: a second, smaller vector size covers the remainder after whole vectors.
using DF8 = hn::CappedTag<float, 8>;
inline constexpr int64_t kLanes8 = static_cast<int64_t>(hn::MaxLanes(DF8()));

// Scores are kept in units of log2 (queries carry a factor of log2 e), so that softmax weights are powers of two:
// 2^x for x <= 0, relative error below 1e-7 down to -125 and an absolute one below 2^-125 from there on; exactly 0 from
// -127 on and for minus infinity. Every lane gets the same arithmetic, so results do not depend on how values are
// grouped into vectors.
inline constexpr float kLog2E = 1.44269504f;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp2NonPositive(D d, V x) {
  const hn::RebindToSigned<D> di;
  x = hn::Max(x, hn::Set(d, -127.0f));
  const auto n = hn::NearestInt(x);
  const V r = hn::Sub(x, hn::ConvertTo(d, n));  // |r| <= 1/2, exact
  // (2^r - 1) / r, interpolated at Chebyshev nodes.
  V p = hn::Set(d, 1.5453262e-04f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3390979e-03f));
  p = hn::MulAdd(p, r, hn::Set(d, 9.618082e-03f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.550357e-02f));
  p = hn::MulAdd(p, r, hn::Set(d, 2.402265e-01f));
  p = hn::MulAdd(p, r, hn::Set(d, 6.931472e-01f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  // n is added to the exponent bits; at x = -127 the bits of 1.0 become those of 0.
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(n)));
}

// Calls fn(std::integral_constant<DType, type>()) for a type of slots.
template <class Fn>
HWY_INLINE void WithSlotType(DType type, const Fn& fn) {
  switch (type) {
    case DType::kF16:
      return fn(std::integral_constant<DType, DType::kF16>());
    case DType::kQ8_0:
      return fn(std::integral_constant<DType, DType::kQ8_0>());
    case DType::kQ5_1:
      return fn(std::integral_constant<DType, DType::kQ5_1>());
    case DType::kQ5_0:
      return fn(std::integral_constant<DType, DType::kQ5_0>());
    case DType::kQ4_1:
      return fn(std::integral_constant<DType, DType::kQ4_1>());
    case DType::kQ4_0:
      return fn(std::integral_constant<DType, DType::kQ4_0>());
    default:
      return fn(std::integral_constant<DType, DType::kF32>());
  }
}

// Elements [i, i + lanes) of a slot whose type is not transformed. Slots are unaligned. Q8_0: REQUIRES that the vector
// stays within one block, as it does for any i that is a multiple of the lanes.
template <DType kType, class D>
HWY_INLINE hn::Vec<D> LoadStored(D d, const uint8_t* slot, int64_t i) {
  if constexpr (kType == DType::kF32) {
    return hn::LoadU(d, reinterpret_cast<const float*>(slot) + i);
  } else if constexpr (kType == DType::kF16) {
    const hn::Rebind<hwy::float16_t, D> dh;
    return hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(slot) + i));
  } else {
    static_assert(kType == DType::kQ8_0);
    const hn::Rebind<int8_t, D> d8;
    const hn::RebindToSigned<D> di;
    const uint8_t* block = slot + i / 32 * static_cast<int64_t>(sizeof(BlockQ8_0));
    const auto codes = hn::PromoteTo(di, hn::LoadU(d8, reinterpret_cast<const int8_t*>(block + 2 + i % 32)));
    return hn::Mul(hn::ConvertTo(d, codes), SetHalf(d, block));
  }
}

// One slot as it is stored, as floats: the transform, where the type has one.
template <DType kType>
HWY_INLINE void DecodeStored(const uint8_t* slot, int64_t head_dim, float* out) {
  if constexpr (IsTransformed(kType)) {
    DecodeCodes<typename BlockOf<kType>::type>(slot, head_dim, out);
  } else {
    const DF d;
    const DF8 d8;
    int64_t i = 0;
    for (; i + kLanes <= head_dim; i += kLanes) hn::StoreU(LoadStored<kType>(d, slot, i), d, out + i);
    for (; i < head_dim; i += kLanes8) hn::StoreU(LoadStored<kType>(d8, slot, i), d8, out + i);
  }
}

// The vector that a slot holds. `factor`: HadamardFactor(head_dim), which takes too long to be computed for each slot.
template <DType kType>
HWY_INLINE void DecodeSlot(const uint8_t* slot, int64_t head_dim, [[maybe_unused]] float factor, float* out) {
  if constexpr (IsTransformed(kType)) {
    DecodeTransformed<typename BlockOf<kType>::type>(slot, head_dim, factor, out);
  } else {
    DecodeStored<kType>(slot, head_dim, out);
  }
}

// The angles of position a + b, or a - b, from those of a and b (n pairs each).
template <bool kSubtract>
HWY_INLINE void CombineAngles(const float* a_cos, const float* a_sin, const float* b_cos, const float* b_sin, int64_t n,
                              float* cos, float* sin) {
  const DF d;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto ac = hn::LoadU(d, a_cos + i), as = hn::LoadU(d, a_sin + i);
    const auto bc = hn::LoadU(d, b_cos + i);
    const auto bs = kSubtract ? hn::Neg(hn::LoadU(d, b_sin + i)) : hn::LoadU(d, b_sin + i);
    hn::StoreU(hn::NegMulAdd(as, bs, hn::Mul(ac, bc)), d, cos + i);
    hn::StoreU(hn::MulAdd(ac, bs, hn::Mul(as, bc)), d, sin + i);
  }
  for (; i < n; ++i) {
    const float bs = kSubtract ? -b_sin[i] : b_sin[i];
    cos[i] = a_cos[i] * b_cos[i] - a_sin[i] * bs;
    sin[i] = a_sin[i] * b_cos[i] + a_cos[i] * bs;
  }
}

// The angles of a position that the tables cover.
HWY_INLINE void AnglesOf(const RopeTable& rope, int64_t pos, float* cos, float* sin) {
  const int64_t n = rope.n_rot / 2;
  const int64_t base = pos / kRopeTile * n, off = pos % kRopeTile * n;
  CombineAngles<false>(&rope.base_cos[base], &rope.base_sin[base], &rope.off_cos[off], &rope.off_sin[off], n, cos, sin);
}

// Rotates n pairs of x: out[i], out[i + n]; x may be out. The rest of the vector is not touched.
HWY_INLINE void RotatePairs(const float* cos, const float* sin, int64_t n, const float* x, float* out) {
  const DF d;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto c = hn::LoadU(d, cos + i), s = hn::LoadU(d, sin + i);
    const auto x0 = hn::LoadU(d, x + i), x1 = hn::LoadU(d, x + n + i);
    hn::StoreU(hn::NegMulAdd(x1, s, hn::Mul(x0, c)), d, out + i);
    hn::StoreU(hn::MulAdd(x0, s, hn::Mul(x1, c)), d, out + n + i);
  }
  for (; i < n; ++i) {
    const float x0 = x[i], x1 = x[n + i];
    out[i] = x0 * cos[i] - x1 * sin[i];
    out[n + i] = x1 * cos[i] + x0 * sin[i];
  }
}

// A query with all constant factors of its scores. Rotated stored keys carry one factor of the rotary embedding's
// magnitude; with un-rotated ones the query carries both.
HWY_INLINE void ScaleQuery(const float* x, const AttentionArgs& args, float* out) {
  const int64_t head_dim = args.head_dim, n_rot = args.rope != nullptr ? args.rope->n_rot : 0;
  const float magnitude = args.rope != nullptr ? args.rope->magnitude : 1.0f;
  const float scale = args.scale * kLog2E;
  const float rotated_scale = scale * magnitude * (args.keys_rotated ? 1.0f : magnitude);
  for (int64_t i = 0; i < n_rot; ++i) out[i] = x[i] * rotated_scale;
  for (int64_t i = n_rot; i < head_dim; ++i) out[i] = x[i] * scale;
}

// A query whose position is that of its row: rotated, unless keys are rotated instead.
HWY_INLINE void RotateQuery(const HeadTask& task, int64_t j, float* q) {
  const int64_t n_pairs = task.n_pairs(), row = task.row(j);
  if (n_pairs == 0 || !task.args->keys_rotated) return;
  RotatePairs(task.args->row_cos + row * n_pairs, task.args->row_sin + row * n_pairs, n_pairs, q, q);
}

// Soft-caps n scores that are still finite; n is a multiple of the lanes. Both in units of log2.
HWY_INLINE void CapScores(float* scores, int64_t n, float softcap) {
  const DF d;
  const float cap = softcap * kLog2E;
  const auto cap_v = hn::Set(d, cap), inverse = hn::Set(d, 1.0f / cap), limit = hn::Set(d, 15.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    // Above 15, tanh is 1 in this precision, and the approximation does not handle infinities.
    const auto x = hn::Mul(hn::Load(d, scores + i), inverse);
    const auto t = hn::Max(hn::Min(x, limit), hn::Neg(limit));
    // Min and Max may turn a NaN into a number.
    hn::Store(hn::IfThenElse(hn::Eq(x, x), hn::Mul(cap_v, hn::Tanh(d, t)), x), d, scores + i);
  }
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
