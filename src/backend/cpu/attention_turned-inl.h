// SPDX-License-Identifier: Apache-2.0
// Scores over keys of 4 and 5 bits that are transformed back and rotated, for attention_score-inl.h; compiled once per
// target. A key is a lane: both transforms are sums and differences of whole vectors, the first one of integers of 16
// bits (attention_words-inl.h), and no score needs a sum over lanes. That needs keys in order, so that the cosines of a
// pair lie side by side too.
#if defined(WEIR_BACKEND_CPU_ATTENTION_TURNED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_BACKEND_CPU_ATTENTION_TURNED_INL_H_
#undef WEIR_BACKEND_CPU_ATTENTION_TURNED_INL_H_
#else
#define WEIR_BACKEND_CPU_ATTENTION_TURNED_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

#include "backend/cpu/attention_words-inl.h"
#include "backend/cpu/transformed_slots-inl.h"
#include "backend/cpu/unroll.h"
#include "ops/hadamard.h"

#if WEIR_MULTIPLIES_WORDS

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// The transform of a block of kLanes keys among its own elements, without its factor: out[i] has element i of each.
template <class Block>
HWY_INLINE void TurnBlock(const uint8_t* const (&blocks)[kLanes], float* out) {
  const DF d;
  const DW dw;
  // Words of two elements, the second two behind the first: FirstOf(e, step). Bits 2 and 3 of an element's index are e,
  // bits 0 and 4 are step, bit 1 tells the two words apart.
  hn::Vec<DW> x[4][4];
  LoadTurned<Block>(blocks, x);
  WEIR_UNROLL
  for (int e = 0; e < 4; ++e) {
    WEIR_UNROLL
    for (int step = 0; step < 4; ++step) {
      if ((e & 1) == 0) AddAndSubtract(x[e][step], x[e + 1][step]);
    }
  }
  WEIR_UNROLL
  for (int e = 0; e < 2; ++e) {
    WEIR_UNROLL
    for (int step = 0; step < 4; ++step) AddAndSubtract(x[e][step], x[e + 2][step]);
  }
  WEIR_UNROLL
  for (int e = 0; e < 4; ++e) {
    AddAndSubtract(x[e][0], x[e][1]);
    AddAndSubtract(x[e][2], x[e][3]);
    AddAndSubtract(x[e][0], x[e][2]);
    AddAndSubtract(x[e][1], x[e][3]);
  }
  // Half of what all codes share, for each of the two words whose sum is the first element; the difference has none.
  if constexpr (!Block::kCodes.has_addend()) x[0][0] = hn::Sub(x[0][0], hn::Set(dw, 16 * Block::kCodes.offset()));
  const hn::Vec<DF> scale = HalfsOf(blocks, offsetof(Block, d));
  const hn::Vec<DW> sum = hn::BitCast(dw, hn::Set(DWSums(), 0x00010001));
  const hn::Vec<DW> difference = hn::BitCast(dw, hn::Set(DWSums(), static_cast<int32_t>(0xffff0001)));
  WEIR_UNROLL
  for (int e = 0; e < 4; ++e) {
    WEIR_UNROLL
    for (int step = 0; step < 4; ++step) {
      float* at = out + FirstOf(e, step) * kLanes;
      const auto first = hn::ConvertTo(d, AddPairs(x[e][step], sum, hn::Zero(DWSums())));
      const auto second = hn::ConvertTo(d, AddPairs(x[e][step], difference, hn::Zero(DWSums())));
      hn::Store(hn::Mul(first, scale), d, at);
      hn::Store(hn::Mul(second, scale), d, at + 2 * kLanes);
    }
  }
  if constexpr (Block::kCodes.has_addend()) {
    const hn::Vec<DF> shared = hn::Mul(HalfsOf(blocks, offsetof(Block, m)), hn::Set(d, Block::kElements));
    hn::Store(hn::Add(hn::Load(d, out), shared), d, out);
  }
}

// kLanes keys transformed back, without the factor: out is [head_dim, kLanes].
template <class Block>
HWY_INLINE void TurnKeys(const uint8_t* (&keys)[kLanes], int64_t head_dim, float* out) {
  const DF d;
  for (int64_t i = 0; i < head_dim; i += Block::kElements) {
    TurnBlock<Block>(keys, out + i * kLanes);
    for (const uint8_t*& key : keys) key += sizeof(Block);
  }
  const int64_t block = HadamardBlock(head_dim);
  for (int64_t apart = Block::kElements; apart < block; apart *= 2) {
    for (int64_t first = 0; first < head_dim; first += 2 * apart) {
      for (int64_t i = first; i < first + apart; ++i) {
        float *low = out + i * kLanes, *high = low + apart * kLanes;
        const hn::Vec<DF> a = hn::Load(d, low), b = hn::Load(d, high);
        hn::Store(hn::Add(a, b), d, low);
        hn::Store(hn::Sub(a, b), d, high);
      }
    }
  }
}

// Scores of kM queries [kM, head_dim] and those keys, whose n_pairs pairs are rotated first. `cos`, `sin`: of the keys,
// each pair's in a row, a row every kRopeTile numbers. `factor`: of the transform.
template <int kM>
HWY_INLINE void ScoreTurned(const float* q, const float* keys, int64_t head_dim, int64_t n_pairs, const float* cos,
                            const float* sin, float factor, float* scores, int64_t score_stride) {
  const DF d;
  using V = hn::Vec<DF>;
  V acc[kM];
  WEIR_UNROLL
  for (int m = 0; m < kM; ++m) acc[m] = hn::Zero(d);
  for (int64_t i = 0; i < n_pairs; ++i) {
    const V x0 = hn::Load(d, keys + i * kLanes), x1 = hn::Load(d, keys + (n_pairs + i) * kLanes);
    const V c = hn::LoadU(d, cos + i * kRopeTile), s = hn::LoadU(d, sin + i * kRopeTile);
    const V y0 = hn::NegMulAdd(x1, s, hn::Mul(x0, c));
    const V y1 = hn::MulAdd(x0, s, hn::Mul(x1, c));
    WEIR_UNROLL
    for (int m = 0; m < kM; ++m) {
      acc[m] = hn::MulAdd(hn::Set(d, q[m * head_dim + i]), y0, acc[m]);
      acc[m] = hn::MulAdd(hn::Set(d, q[m * head_dim + n_pairs + i]), y1, acc[m]);
    }
  }
  for (int64_t i = 2 * n_pairs; i < head_dim; ++i) {
    const V x = hn::Load(d, keys + i * kLanes);
    WEIR_UNROLL
    for (int m = 0; m < kM; ++m) acc[m] = hn::MulAdd(hn::Set(d, q[m * head_dim + i]), x, acc[m]);
  }
  WEIR_UNROLL
  for (int m = 0; m < kM; ++m) hn::StoreU(hn::Mul(acc[m], hn::Set(d, factor)), d, scores + m * score_stride);
}

}  // namespace
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // WEIR_MULTIPLIES_WORDS
#endif  // per-target guard
