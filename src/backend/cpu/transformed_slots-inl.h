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
template <class Block, class D>
HWY_INLINE void LoadNumbers(D d, const uint8_t* block, hn::Vec<D>* scale, hn::Vec<D>* addend) {
  *scale = SetHalf(d, block + offsetof(Block, d));
  if constexpr (Block::kCodes.has_addend()) {
    *addend = SetHalf(d, block + offsetof(Block, m));
  } else {
    *addend = hn::Mul(*scale, hn::Set(d, -static_cast<float>(Block::kCodes.offset())));
  }
}

// The elements of a block as they are stored: of the transform.
template <class Block>
HWY_INLINE void LoadElements(const uint8_t* block, hn::Vec<DF> (&out)[kBlockVectors<Block>]) {
  LoadCodes<Block>(block, out);
  hn::Vec<DF> scale, addend;
  LoadNumbers<Block>(DF(), block, &scale, &addend);
  WEIR_UNROLL
  for (int j = 0; j < kBlockVectors<Block>; ++j) out[j] = hn::MulAdd(out[j], scale, addend);
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

// A block transformed back among its own elements. Of what codes share, only the sum over the block remains, in its
// first element.
template <class Block>
HWY_INLINE void LoadTransformed(const uint8_t* block, float factor, hn::Vec<DF> (&out)[kBlockVectors<Block>]) {
  const DF d;
  LoadCodes<Block>(block, out);
  TransformVectors(out);
  hn::Vec<DF> scale, sum;
  LoadNumbers<Block>(d, block, &scale, &sum);
  scale = hn::Mul(scale, hn::Set(d, factor));
  sum = hn::Mul(sum, hn::Set(d, factor * static_cast<float>(Block::kElements)));
  out[0] = hn::MulAdd(out[0], scale, hn::IfThenElseZero(hn::FirstN(d, 1), sum));
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
