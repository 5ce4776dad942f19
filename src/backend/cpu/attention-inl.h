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

#include "backend/cpu/hadamard-inl.h"
#include "backend/cpu/unroll.h"
#include "ops/attention.h"
#include "ops/kv_slots.h"
#include "quant/dtype.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q8_0.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));
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

template <DType kType>
struct BlockOf;
template <>
struct BlockOf<DType::kQ5_1> : std::type_identity<BlockQ5_1> {};
template <>
struct BlockOf<DType::kQ5_0> : std::type_identity<BlockQ5_0> {};
template <>
struct BlockOf<DType::kQ4_1> : std::type_identity<BlockQ4_1> {};
template <>
struct BlockOf<DType::kQ4_0> : std::type_identity<BlockQ4_0> {};

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

// An F16 number in all lanes.
template <class D>
HWY_INLINE hn::Vec<D> SetHalf(D d, const uint8_t* at) {
  uint16_t half;
  std::memcpy(&half, at, sizeof(half));
  const hn::Rebind<uint16_t, D> du16;
  const hn::Rebind<hwy::float16_t, D> dh;
  return hn::PromoteTo(d, hn::BitCast(dh, hn::Set(du16, half)));
}

// All codes of a block of 4 or 5 bits, as they are stored.
template <class Block>
HWY_INLINE void LoadCodes(const uint8_t* block, hn::Vec<DF> (&out)[Block::kElements / kLanes]) {
  constexpr int kHalf = Block::kElements / 2 / kLanes;  // vectors of low nibbles, then as many of high ones
  const DF d;
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<uint8_t, DF> d8;
  [[maybe_unused]] const hn::RebindToUnsigned<DF> du;
  [[maybe_unused]] uint32_t high = 0;
  if constexpr (Block::kCodes.bits == 5) std::memcpy(&high, block + offsetof(Block, qh), sizeof(high));
  // Fifth bits of the elements from `i` on.
  const auto with_fifth = [&](auto codes, int i) HWY_ATTR {
    if constexpr (Block::kCodes.bits == 5) {
      const auto bits = hn::And(hn::Shr(hn::Set(du, high >> i), hn::Iota(du, 0)), hn::Set(du, 1));
      return hn::Or(codes, hn::BitCast(di, hn::ShiftLeft<4>(bits)));
    } else {
      return codes;
    }
  };
  WEIR_UNROLL
  for (int j = 0; j < kHalf; ++j) {
    const int i = j * static_cast<int>(kLanes);
    const auto bytes = hn::PromoteTo(di, hn::LoadU(d8, block + offsetof(Block, qs) + i));
    out[j] = hn::ConvertTo(d, with_fifth(hn::And(bytes, hn::Set(di, 15)), i));
    out[kHalf + j] = hn::ConvertTo(d, with_fifth(hn::ShiftRight<4>(bytes), Block::kElements / 2 + i));
  }
}

// What all codes of a block share: element = code * scale + addend.
struct BlockNumbers {
  float scale, addend;
};
template <class Block>
HWY_INLINE BlockNumbers NumbersOf(const uint8_t* block) {
  const hn::CappedTag<float, 4> d4;
  BlockNumbers out;
  out.scale = hn::GetLane(SetHalf(d4, block + offsetof(Block, d)));
  if constexpr (Block::kCodes.has_addend()) {
    out.addend = hn::GetLane(SetHalf(d4, block + offsetof(Block, m)));
  } else {
    out.addend = -static_cast<float>(Block::kCodes.offset()) * out.scale;
  }
  return out;
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
  const DF d;
  if constexpr (IsTransformed(kType)) {
    using Block = typename BlockOf<kType>::type;
    for (int64_t i = 0; i < head_dim; i += Block::kElements, slot += sizeof(Block)) {
      hn::Vec<DF> v[Block::kElements / kLanes];
      LoadCodes<Block>(slot, v);
      const BlockNumbers numbers = NumbersOf<Block>(slot);
      WEIR_UNROLL
      for (int j = 0; j < Block::kElements / static_cast<int>(kLanes); ++j) {
        hn::StoreU(hn::MulAdd(v[j], hn::Set(d, numbers.scale), hn::Set(d, numbers.addend)), d, out + i + j * kLanes);
      }
    }
  } else {
    const DF8 d8;
    int64_t i = 0;
    for (; i + kLanes <= head_dim; i += kLanes) hn::StoreU(LoadStored<kType>(d, slot, i), d, out + i);
    for (; i < head_dim; i += kLanes8) hn::StoreU(LoadStored<kType>(d8, slot, i), d8, out + i);
  }
}

// The vector that a slot holds. Codes are transformed before they get their scales: of what they share, only the sum
// over the block remains, in its first element.
template <DType kType>
HWY_INLINE void DecodeSlot(const uint8_t* slot, int64_t head_dim, float* out) {
  if constexpr (IsTransformed(kType)) {
    using Block = typename BlockOf<kType>::type;
    const DF d;
    const float factor = HadamardFactor(head_dim);
    const auto first = hn::FirstN(d, 1);
    for (int64_t i = 0; i < head_dim; i += Block::kElements, slot += sizeof(Block)) {
      hn::Vec<DF> v[Block::kElements / kLanes];
      LoadCodes<Block>(slot, v);
      TransformVectors(v);
      const BlockNumbers numbers = NumbersOf<Block>(slot);
      const auto scale = hn::Set(d, numbers.scale * factor);
      const auto sum = hn::Set(d, numbers.addend * factor * static_cast<float>(Block::kElements));
      hn::StoreU(hn::MulAdd(v[0], scale, hn::IfThenElseZero(first, sum)), d, out + i);
      WEIR_UNROLL
      for (int j = 1; j < Block::kElements / static_cast<int>(kLanes); ++j) {
        hn::StoreU(hn::Mul(v[j], scale), d, out + i + j * kLanes);
      }
    }
    JoinParts(out, head_dim, Block::kElements);
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
