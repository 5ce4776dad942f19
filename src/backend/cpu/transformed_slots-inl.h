// SPDX-License-Identifier: Apache-2.0
// Slots whose type is transformed (ops/kv_slots.h): blocks of 32 codes of 4 or 5 bits. Read as codes, or transformed
// back; compiled once per target.
#if defined(WEIR_BACKEND_CPU_TRANSFORMED_SLOTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_BACKEND_CPU_TRANSFORMED_SLOTS_INL_H_
#undef WEIR_BACKEND_CPU_TRANSFORMED_SLOTS_INL_H_
#else
#define WEIR_BACKEND_CPU_TRANSFORMED_SLOTS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"

#include "backend/cpu/hadamard-inl.h"
#include "backend/cpu/unroll.h"
#include "quant/dtype.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));

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

// Vectors of a block.
template <class Block>
inline constexpr int kBlockVectors = Block::kElements / static_cast<int>(kLanes);

// An F16 number in all lanes.
template <class D>
HWY_INLINE hn::Vec<D> SetHalf(D d, const uint8_t* at) {
  uint16_t half;
  std::memcpy(&half, at, sizeof(half));
  const hn::Rebind<uint16_t, D> du16;
  const hn::Rebind<hwy::float16_t, D> dh;
  return hn::PromoteTo(d, hn::BitCast(dh, hn::Set(du16, half)));
}

// All codes of a block, as they are stored.
template <class Block>
HWY_INLINE void LoadCodes(const uint8_t* block, hn::Vec<DF> (&out)[kBlockVectors<Block>]) {
  constexpr int kHalf = kBlockVectors<Block> / 2;  // vectors of low nibbles, then as many of high ones
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

// What all codes of a block share, in all lanes: element = code * scale + addend.
template <class D>
struct BlockNumbers {
  hn::Vec<D> scale, addend;
};
template <class Block, class D>
HWY_INLINE BlockNumbers<D> NumbersOf(D d, const uint8_t* block) {
  BlockNumbers<D> out;
  out.scale = SetHalf(d, block + offsetof(Block, d));
  if constexpr (Block::kCodes.has_addend()) {
    out.addend = SetHalf(d, block + offsetof(Block, m));
  } else {
    out.addend = hn::Mul(out.scale, hn::Set(d, -static_cast<float>(Block::kCodes.offset())));
  }
  return out;
}

// The elements of a block as they are stored: of the transform.
template <class Block>
HWY_INLINE void LoadElements(const uint8_t* block, hn::Vec<DF> (&out)[kBlockVectors<Block>]) {
  LoadCodes<Block>(block, out);
  const BlockNumbers<DF> numbers = NumbersOf<Block>(DF(), block);
  WEIR_UNROLL
  for (int j = 0; j < kBlockVectors<Block>; ++j) out[j] = hn::MulAdd(out[j], numbers.scale, numbers.addend);
}

// A slot as it is stored.
template <class Block>
HWY_INLINE void DecodeCodes(const uint8_t* slot, int64_t head_dim, float* out) {
  for (int64_t i = 0; i < head_dim; i += Block::kElements, slot += sizeof(Block)) {
    hn::Vec<DF> v[kBlockVectors<Block>];
    LoadElements<Block>(slot, v);
    WEIR_UNROLL
    for (int j = 0; j < kBlockVectors<Block>; ++j) hn::StoreU(v[j], DF(), out + i + j * kLanes);
  }
}

// Codes are transformed as bytes, as far as their sums fit into bytes: that takes a quarter of the operations of
// floats.
#define WEIR_TRANSFORM_BYTES (HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86)

#if WEIR_TRANSFORM_BYTES
using DBytes = hn::FixedTag<int8_t, 32>;

// TransformVectors' butterfly, of bytes.
template <int kApart>
HWY_INLINE hn::Vec<DBytes> ButterflyBytes(hn::Vec<DBytes> v) {
  static_assert(kApart == 1 || kApart == 2 || kApart == 4 || kApart == 8);
  const DBytes d;
  constexpr auto kTables = [] {
    struct {
      alignas(32) int8_t swap[32], sign[32];
    } t = {};
    for (int i = 0; i < 32; ++i) {
      t.swap[i] = static_cast<int8_t>((i % 16) ^ kApart);
      t.sign[i] = (i & kApart) != 0 ? -1 : 1;
    }
    return t;
  }();
  HWY_ALIGN static constexpr auto kTable = kTables;
  const auto swapped = hn::TableLookupBytes(v, hn::Load(d, kTable.swap));
#if HWY_TARGET == HWY_AVX2
  return hn::Add(swapped, hn::Vec<DBytes>{_mm256_sign_epi8(v.raw, hn::Load(d, kTable.sign).raw)});
#else
  const auto upper = hn::Lt(hn::Load(d, kTable.sign), hn::Zero(d));
  return hn::IfThenElse(upper, hn::Sub(swapped, v), hn::Add(swapped, v));
#endif
}

// The transform of a block's codes, each less half of their range, without its factor: exact.
template <class Block>
HWY_INLINE void LoadTransformedCodes(const uint8_t* block, hn::Vec<DF> (&out)[kBlockVectors<Block>]) {
  constexpr int kBits = Block::kCodes.bits;
  const DF d;
  const DBytes d8;
  const hn::RebindToUnsigned<DBytes> du8;
  const hn::FixedTag<uint8_t, 16> dq;
  const auto qs = hn::LoadU(dq, block + offsetof(Block, qs));
  auto v = hn::BitCast(d8, hn::Combine(du8, hn::ShiftRight<4>(qs), hn::And(qs, hn::Set(dq, 15))));
  if constexpr (kBits == 5) {
    const auto high = hn::LoadMaskBits(d8, block + offsetof(Block, qh));
    v = hn::Sub(v, hn::IfThenZeroElse(high, hn::Set(d8, 16)));  // a fifth bit adds what is subtracted
  } else {
    v = hn::Sub(v, hn::Set(d8, 8));
  }
  v = ButterflyBytes<4>(ButterflyBytes<2>(ButterflyBytes<1>(v)));
  // Sums of 16 numbers of 4 bits, or of 8 numbers of 5, are at least -128; differences are smaller.
  if constexpr (kBits == 4) v = ButterflyBytes<8>(v);
  const hn::FixedTag<int8_t, 16> dh;
  [[maybe_unused]] const hn::Rebind<int8_t, DF> d_part;
  const hn::RebindToSigned<DF> di;
  const auto widen = [&](auto half, int j) HWY_ATTR {
    if constexpr (kLanes == 16) {
      out[j] = hn::ConvertTo(d, hn::PromoteTo(di, half));
    } else {
      out[j] = hn::ConvertTo(d, hn::PromoteTo(di, hn::LowerHalf(d_part, half)));
      out[j + 1] = hn::ConvertTo(d, hn::PromoteTo(di, hn::UpperHalf(d_part, half)));
    }
  };
  widen(hn::LowerHalf(dh, v), 0);
  widen(hn::UpperHalf(dh, v), kBlockVectors<Block> / 2);
  constexpr int kLeft = kBits == 4 ? 16 : 8;  // elements apart
  if constexpr (kLeft == 8 && kLanes == 16) {
    WEIR_UNROLL
    for (int j = 0; j < kBlockVectors<Block>; ++j) out[j] = Butterfly<8>(out[j]);
  }
  WEIR_UNROLL
  for (int apart = kLeft == 8 && kLanes == 8 ? 1 : 16 / static_cast<int>(kLanes); apart < kBlockVectors<Block>;
       apart *= 2) {
    WEIR_UNROLL
    for (int j = 0; j < kBlockVectors<Block>; ++j) {
      if ((j & apart) != 0) continue;
      const auto a = out[j], b = out[j + apart];
      out[j] = hn::Add(a, b);
      out[j + apart] = hn::Sub(a, b);
    }
  }
}
#else
template <class Block>
HWY_INLINE void LoadTransformedCodes(const uint8_t* block, hn::Vec<DF> (&out)[kBlockVectors<Block>]) {
  const DF d;
  LoadCodes<Block>(block, out);
  WEIR_UNROLL
  for (int j = 0; j < kBlockVectors<Block>; ++j) {
    out[j] = hn::Sub(out[j], hn::Set(d, static_cast<float>(1 << (Block::kCodes.bits - 1))));
  }
  TransformVectors(out);
}
#endif

// A block transformed back among its own elements. Of what codes share, only the sum over the block remains, in its
// first element.
template <class Block>
HWY_INLINE void LoadTransformed(const uint8_t* block, float factor, hn::Vec<DF> (&out)[kBlockVectors<Block>]) {
  const DF d;
  LoadTransformedCodes<Block>(block, out);
  const auto scale = hn::Mul(SetHalf(d, block + offsetof(Block, d)), hn::Set(d, factor));
  if constexpr (Block::kCodes.has_addend()) {
    const auto addend = hn::MulAdd(scale, hn::Set(d, static_cast<float>(1 << (Block::kCodes.bits - 1))),
                                   hn::Mul(SetHalf(d, block + offsetof(Block, m)), hn::Set(d, factor)));
    const auto sum = hn::Mul(addend, hn::Set(d, static_cast<float>(Block::kElements)));
    out[0] = hn::MulAdd(out[0], scale, hn::IfThenElseZero(hn::FirstN(d, 1), sum));
  } else {
    out[0] = hn::Mul(out[0], scale);
  }
  WEIR_UNROLL
  for (int j = 1; j < kBlockVectors<Block>; ++j) out[j] = hn::Mul(out[j], scale);
}

// The vector that a slot holds. `factor`: HadamardFactor(head_dim).
template <class Block>
HWY_INLINE void DecodeTransformed(const uint8_t* slot, int64_t head_dim, float factor, float* out) {
  const DF d;
  constexpr int kVectors = kBlockVectors<Block>;
  const int64_t block = HadamardBlock(head_dim);
  if (block == Block::kElements) {
    for (int64_t i = 0; i < head_dim; i += Block::kElements, slot += sizeof(Block)) {
      hn::Vec<DF> v[kVectors];
      LoadTransformed<Block>(slot, factor, v);
      WEIR_UNROLL
      for (int j = 0; j < kVectors; ++j) hn::StoreU(v[j], d, out + i + j * kLanes);
    }
    return;
  }
  for (int64_t i = 0; i < head_dim; i += 2 * Block::kElements, slot += 2 * sizeof(Block)) {
    hn::Vec<DF> a[kVectors], b[kVectors];
    LoadTransformed<Block>(slot, factor, a);
    LoadTransformed<Block>(slot + sizeof(Block), factor, b);
    WEIR_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      hn::StoreU(hn::Add(a[j], b[j]), d, out + i + j * kLanes);
      hn::StoreU(hn::Sub(a[j], b[j]), d, out + i + Block::kElements + j * kLanes);
    }
  }
  JoinParts(out, head_dim, 2 * Block::kElements);
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
