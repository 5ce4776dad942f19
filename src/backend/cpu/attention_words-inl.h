// SPDX-License-Identifier: Apache-2.0
// Scores and sums over codes of 4 and 5 bits as integers of 16 bits, for attention_slots.cc; compiled once per target.
// Processors multiply pairs of such integers and add them up in one instruction, and codes need not become floats one
// by one. Queries are rounded to 16 bits of their largest element, weights of values to 16 bits of the largest one of a
// tile of slots: that is some 2^-10 of the error that the codes have themselves. WEIR_MULTIPLIES_WORDS is 0 where such
// a product takes several instructions, as many as floats do; there is nothing here for such targets.
#if defined(WEIR_BACKEND_CPU_ATTENTION_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_BACKEND_CPU_ATTENTION_WORDS_INL_H_
#undef WEIR_BACKEND_CPU_ATTENTION_WORDS_INL_H_
#else
#define WEIR_BACKEND_CPU_ATTENTION_WORDS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "hwy/highway.h"

#include "backend/cpu/transformed_slots-inl.h"
#include "backend/cpu/unroll.h"

#undef WEIR_MULTIPLIES_WORDS
#define WEIR_MULTIPLIES_WORDS (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2)
#if WEIR_MULTIPLIES_WORDS

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using DW = hn::Repartition<int16_t, DF>;
using DWSums = hn::RebindToSigned<DF>;

// sums + the products of each pair of words.
HWY_INLINE hn::Vec<DWSums> AddPairs(hn::Vec<DW> a, hn::Vec<DW> b, hn::Vec<DWSums> sums) {
#if HWY_TARGET <= HWY_AVX3_DL  // which has VNNI; Highway does not tell the compiler
  asm("vpdpwssd %2, %1, %0" : "+v"(sums.raw) : "v"(a.raw), "v"(b.raw));
  return sums;
#else
  hn::Vec<DWSums> none = hn::Zero(DWSums());
  return hn::ReorderWidenMulAccumulate(DWSums(), a, b, sums, none);
#endif
}

// Floats as words: value = word * scale.
struct WordScale {
  float scale, inverse;

  // Of floats whose largest magnitude is `most`.
  explicit WordScale(float most) {
    constexpr float kMost = std::numeric_limits<int16_t>::max();
    constexpr float kNothing = 1e-30f;  // its inverse would not be finite
    scale = most / kMost;
    inverse = most > kNothing ? kMost / most : 0.0f;
  }
};

HWY_INLINE hn::Vec<hn::Rebind<int16_t, DF>> ToWords(hn::Vec<DF> v, float inverse) {
  return hn::DemoteTo(hn::Rebind<int16_t, DF>(), hn::NearestInt(hn::Mul(v, hn::Set(DF(), inverse))));
}

// The two words at `at`, in all lanes.
HWY_INLINE hn::Vec<DW> PairAt(const void* at) {
  int32_t both;
  std::memcpy(&both, at, sizeof(both));
  return hn::BitCast(DW(), hn::Set(DWSums(), both));
}

// Words are taken from 4 bytes with 8 codes, two at a time: step 0 to 3 of bytes 4 * e to 4 * e + 3 has the elements at
// FirstOf(e, step) and two behind it.
constexpr int FirstOf(int e, int step) { return 4 * e + step / 2 + step % 2 * 16; }

// A query as words, in the room of its floats: [head_dim] words in the order in which they are taken, their scale, then
// for each block the sum of its words. REQUIRES: head_dim is a multiple of 32.
HWY_INLINE void StoreAsWords(const float* q, int64_t head_dim, float* room) {
  const DF d;
  hn::Vec<DF> most = hn::Zero(d), broken = hn::Zero(d);
  for (int64_t i = 0; i < head_dim; i += kLanes) {
    const hn::Vec<DF> v = hn::LoadU(d, q + i);
    most = hn::Max(most, hn::Abs(v));
    broken = hn::MulAdd(v, hn::Zero(d), broken);
  }
  const WordScale scale(hn::GetLane(hn::MaxOfLanes(d, most)));
  int16_t* words = reinterpret_cast<int16_t*>(room);
  float* numbers = room + head_dim / 2;
  // A number that is none, or infinite, is seen in every score.
  *numbers++ = scale.scale + hn::GetLane(hn::SumOfLanes(d, broken));
  for (int64_t i = 0; i < head_dim; i += 32) {
    HWY_ALIGN int16_t in_order[32];
    int32_t sum = 0;
    for (int64_t j = 0; j < 32; j += kLanes) {
      hn::Store(ToWords(hn::LoadU(d, q + i + j), scale.inverse), hn::Rebind<int16_t, DF>(), in_order + j);
    }
    for (int e = 0; e < 4; ++e) {
      for (int step = 0; step < 4; ++step) {
        *words++ = in_order[FirstOf(e, step)];
        *words++ = in_order[FirstOf(e, step) + 2];
      }
    }
    for (const int16_t word : in_order) sum += word;
    *numbers++ = static_cast<float>(sum);
  }
}

// kM of them.
template <int kM>
struct WordQueries {
  const float* room;
  int64_t head_dim;

  WordQueries(const float* room, int64_t head_dim) : room(room), head_dim(head_dim) {}
  const float* numbers(int m) const { return room + m * head_dim + head_dim / 2; }
  float scale(int m) const { return numbers(m)[0]; }
  float sum(int m, int64_t block) const { return numbers(m)[1 + block]; }
  HWY_INLINE hn::Vec<DW> Pair(int m, int64_t block, int e, int step) const {
    return PairAt(room + m * head_dim + block * 16 + e * 4 + step);
  }
};

// F16 numbers at `offset` of kLanes blocks.
HWY_INLINE hn::Vec<DF> HalfsOf(const uint8_t* const (&blocks)[kLanes], int64_t offset) {
  HWY_ALIGN uint16_t halfs[kLanes];
  for (int64_t s = 0; s < kLanes; ++s) std::memcpy(&halfs[s], blocks[s] + offset, sizeof(halfs[s]));
  const hn::Rebind<hwy::float16_t, DF> dh;
  return hn::PromoteTo(DF(), hn::Load(dh, reinterpret_cast<const hwy::float16_t*>(halfs)));
}

// The 16 bytes at `offset` of kLanes blocks, four of each in out[0], the next four in out[1] ...: a lane is a block.
HWY_INLINE void Transpose(const uint8_t* const (&blocks)[kLanes], int64_t offset, hn::Vec<DW> (&out)[4]) {
  const hn::Full128<uint8_t> d8;
  const hn::Repartition<uint8_t, DF> bytes;
  const hn::RebindToUnsigned<DF> d32;
  const hn::Repartition<uint64_t, DF> d64;
  hn::Vec<decltype(d32)> rows[4];
  WEIR_UNROLL
  for (int i = 0; i < 4; ++i) {
    const auto at = [&](int block) HWY_ATTR { return hn::LoadU(d8, blocks[4 * block + i] + offset); };
#if HWY_TARGET <= HWY_AVX3
    const hn::Full256<uint8_t> half;
    rows[i] = hn::BitCast(d32, hn::Combine(bytes, hn::Combine(half, at(3), at(2)), hn::Combine(half, at(1), at(0))));
#else
    rows[i] = hn::BitCast(d32, hn::Combine(bytes, at(1), at(0)));
#endif
  }
  WEIR_UNROLL
  for (int i = 0; i < 2; ++i) {
    const auto ab = i == 0 ? hn::InterleaveLower(d32, rows[0], rows[1]) : hn::InterleaveUpper(d32, rows[0], rows[1]);
    const auto cd = i == 0 ? hn::InterleaveLower(d32, rows[2], rows[3]) : hn::InterleaveUpper(d32, rows[2], rows[3]);
    const auto ab64 = hn::BitCast(d64, ab), cd64 = hn::BitCast(d64, cd);
    out[2 * i] = hn::BitCast(DW(), hn::InterleaveLower(d64, ab64, cd64));
    out[2 * i + 1] = hn::BitCast(DW(), hn::InterleaveUpper(d64, ab64, cd64));
  }
}

// Fifth bits of kLanes blocks, a block in each lane: those of elements 0 to 15 in its lower word and of elements 2 to
// 17, of which 16 and 17 are not used, in its upper one; the same for the elements from 16 on.
struct FifthBits {
  hn::Vec<hn::RebindToUnsigned<DW>> of[2];

  HWY_INLINE void Load(const uint8_t* const (&blocks)[kLanes], int64_t offset) {
    const hn::RebindToUnsigned<DF> d32;
    const hn::RebindToUnsigned<DW> d16;
    HWY_ALIGN uint32_t bits[kLanes];
    for (int64_t s = 0; s < kLanes; ++s) std::memcpy(&bits[s], blocks[s] + offset, sizeof(bits[s]));
    const auto all = hn::Load(d32, bits), upper = hn::Set(d32, 0xffff0000u), lower = hn::Set(d32, 0xffffu);
    of[0] = hn::BitCast(d16, hn::Or(hn::And(all, lower), hn::And(hn::ShiftLeft<14>(all), upper)));
    of[1] = hn::BitCast(d16, hn::Or(hn::ShiftRight<16>(all), hn::And(hn::ShiftRight<2>(all), upper)));
  }
  // Their part of the codes of a step.
  HWY_INLINE hn::Vec<DW> Of(int e, int step) const {
    const hn::RebindToUnsigned<DW> d16;
    const int bit = FirstOf(e, step) % 16;
    const auto bits = of[step % 2];
    const auto moved = bit < 4 ? hn::ShiftLeftSame(bits, 4 - bit) : hn::ShiftRightSame(bits, bit - 4);
    return hn::BitCast(DW(), hn::And(moved, hn::Set(d16, 16)));
  }
};

// Codes of kLanes blocks, a block in each lane: the steps of every four bytes.
template <class Block>
HWY_INLINE void LoadTurned(const uint8_t* const (&blocks)[kLanes], hn::Vec<DW> (&out)[4][4]) {
  const hn::RebindToUnsigned<DW> d16;
  hn::Vec<DW> bytes[4];
  Transpose(blocks, offsetof(Block, qs), bytes);
  [[maybe_unused]] FifthBits fifth;
  if constexpr (Block::kCodes.bits == 5) fifth.Load(blocks, offsetof(Block, qh));
  WEIR_UNROLL
  for (int e = 0; e < 4; ++e) {
    const auto four = hn::BitCast(d16, bytes[e]);
    out[e][0] = hn::BitCast(DW(), hn::And(four, hn::Set(d16, 15)));
    out[e][1] = hn::BitCast(DW(), hn::And(hn::ShiftRight<4>(four), hn::Set(d16, 15)));
    out[e][2] = hn::BitCast(DW(), hn::And(hn::ShiftRight<8>(four), hn::Set(d16, 15)));
    out[e][3] = hn::BitCast(DW(), hn::ShiftRight<12>(four));
    if constexpr (Block::kCodes.bits == 5) {
      WEIR_UNROLL
      for (int step = 0; step < 4; ++step) out[e][step] = hn::Or(out[e][step], fifth.Of(e, step));
    }
  }
}

HWY_INLINE void AddAndSubtract(hn::Vec<DW>& a, hn::Vec<DW>& b) {
  const hn::Vec<DW> sum = hn::Add(a, b);
  b = hn::Sub(a, b);
  a = sum;
}

// Scores of kM queries and kLanes keys that are used as they are stored, a key in each lane.
template <class Block, int kM>
HWY_INLINE void ScoreWords(const WordQueries<kM>& q, const uint8_t* (&keys)[kLanes], hn::Vec<DF> (&out)[kM]) {
  const DF d;
  WEIR_UNROLL
  for (int m = 0; m < kM; ++m) out[m] = hn::Zero(d);
  for (int64_t b = 0; b < q.head_dim / Block::kElements; ++b) {
    hn::Vec<DW> codes[4][4];
    LoadTurned<Block>(keys, codes);
    // Two of each, so that a product need not wait for the one before.
    hn::Vec<DWSums> sums[kM][2];
    WEIR_UNROLL
    for (int m = 0; m < kM; ++m) sums[m][0] = sums[m][1] = hn::Zero(DWSums());
    WEIR_UNROLL
    for (int e = 0; e < 4; ++e) {
      WEIR_UNROLL
      for (int step = 0; step < 4; ++step) {
        WEIR_UNROLL
        for (int m = 0; m < kM; ++m) {
          sums[m][step % 2] = AddPairs(q.Pair(m, b, e, step), codes[e][step], sums[m][step % 2]);
        }
      }
    }
    const hn::Vec<DF> scale = HalfsOf(keys, offsetof(Block, d));
    WEIR_UNROLL
    for (int m = 0; m < kM; ++m) {
      const hn::Vec<DF> sum = hn::ConvertTo(d, hn::Add(sums[m][0], sums[m][1]));
      if constexpr (Block::kCodes.has_addend()) {
        const hn::Vec<DF> minimum = HalfsOf(keys, offsetof(Block, m));
        out[m] = hn::MulAdd(minimum, hn::Set(d, q.sum(m, b)), hn::MulAdd(sum, scale, out[m]));
      } else {
        const hn::Vec<DF> centre = hn::Set(d, static_cast<float>(Block::kCodes.offset()) * q.sum(m, b));
        out[m] = hn::MulAdd(hn::Sub(sum, centre), scale, out[m]);
      }
    }
    for (const uint8_t*& key : keys) key += sizeof(Block);
  }
  WEIR_UNROLL
  for (int m = 0; m < kM; ++m) out[m] = hn::Mul(out[m], hn::Set(d, q.scale(m)));
}

// kLanes bytes of each, one of the first beside one of the second.
HWY_INLINE hn::Vec<DW> InterleavedWords(const uint8_t* first, const uint8_t* second) {
  const hn::Full128<uint8_t> d8;
#if HWY_TARGET <= HWY_AVX3
  const auto a = hn::LoadU(d8, first), b = hn::LoadU(d8, second);
  const hn::Full256<uint8_t> both;
  return hn::PromoteTo(DW(), hn::Combine(both, hn::InterleaveUpper(d8, a, b), hn::InterleaveLower(a, b)));
#else
  const hn::Full64<uint8_t> half;
  const auto a = hn::LoadU(half, first), b = hn::LoadU(half, second);
  return hn::PromoteTo(DW(), hn::InterleaveLower(hn::ZeroExtendVector(d8, a), hn::ZeroExtendVector(d8, b)));
#endif
}

// Codes of the same elements of two blocks, one block's beside the other's: those of the low nibbles of kLanes bytes
// from `part` * kLanes on, and of the high ones.
template <class Block>
HWY_INLINE void LoadPairs(const uint8_t* first, const uint8_t* second, int part, hn::Vec<DW> (&out)[2]) {
  const DW d;
  const int64_t at = static_cast<int64_t>(offsetof(Block, qs)) + part * kLanes;
  const hn::Vec<DW> pairs = InterleavedWords(first + at, second + at);
  out[0] = hn::And(pairs, hn::Set(d, 15));
  out[1] = hn::ShiftRight<4>(pairs);
  if constexpr (Block::kCodes.bits == 5) {
    HWY_ALIGN static constexpr uint16_t kBit[32] = {0x1,    0x1,    0x2,    0x2,    0x4,    0x4,    0x8,    0x8,
                                                    0x10,   0x10,   0x20,   0x20,   0x40,   0x40,   0x80,   0x80,
                                                    0x100,  0x100,  0x200,  0x200,  0x400,  0x400,  0x800,  0x800,
                                                    0x1000, 0x1000, 0x2000, 0x2000, 0x4000, 0x4000, 0x8000, 0x8000};
    const hn::RebindToUnsigned<DW> du;
    const auto bit = hn::Load(du, kBit + part * 2 * kLanes);
    WEIR_UNROLL
    for (int j = 0; j < 2; ++j) {
      uint16_t of[2];
      std::memcpy(&of[0], first + offsetof(Block, qh) + 2 * j, sizeof(of[0]));
      std::memcpy(&of[1], second + offsetof(Block, qh) + 2 * j, sizeof(of[1]));
      const uint32_t both = of[0] | uint32_t{of[1]} << 16;
      const auto bits = hn::BitCast(du, hn::Set(hn::RepartitionToWide<decltype(du)>(), both));
      const auto fifth = hn::IfThenElseZero(hn::TestBit(bits, bit), hn::Set(du, 16));
      out[j] = hn::Or(out[j], hn::BitCast(d, fifth));
    }
  }
}

// Slots whose weights share a scale. A sum of them takes less time per slot the more there are, and is less exact: each
// weight is rounded to a 2^16th of the largest.
constexpr int64_t kWeightTile = 64;

// Weights of one query for at most kWeightTile slots, times the scales of their blocks, as words.
struct WordWeights {
  HWY_ALIGN int16_t at[kWeightTile];
  float scale;

  HWY_INLINE void Set(const hn::Vec<DF> (&weights)[kWeightTile / kLanes]) {
    const DF d;
    hn::Vec<DF> most = hn::Zero(d);
    WEIR_UNROLL
    for (int i = 0; i < kWeightTile / kLanes; ++i) most = hn::Max(most, hn::Abs(weights[i]));
    const WordScale of(hn::GetLane(hn::MaxOfLanes(d, most)));
    scale = of.scale;
    WEIR_UNROLL
    for (int i = 0; i < kWeightTile / kLanes; ++i) {
      hn::Store(ToWords(weights[i], of.inverse), hn::Rebind<int16_t, DF>(), at + i * kLanes);
    }
  }
  // Those of slots s and s + 1, s even, in all lanes.
  HWY_INLINE hn::Vec<DW> Pair(int64_t s) const { return PairAt(at + s); }
};

// out[m][b] += sum_s weight[m][b][s] * code[b][s] for kBlocks blocks, at `offset` of each of n_slots slots, and kM
// queries. Slots and weights beyond n_slots are valid, the weights zero. `fetch(s, n)`: called before slots [s, s + n)
// are read for the first time.
template <class Block, int kM, int kBlocks, class Fetch>
HWY_INLINE void MixWords(const uint8_t* const (&slots)[kWeightTile], int64_t offset, int64_t n_slots,
                         const WordWeights (&weight)[kM][kBlocks], float* out, int64_t out_stride, const Fetch& fetch) {
  const DF d;
  WEIR_UNROLL
  for (int part = 0; part < 16 / kLanes; ++part) {
    hn::Vec<DWSums> sums[kM][kBlocks][2];
    WEIR_UNROLL
    for (int m = 0; m < kM; ++m) {
      WEIR_UNROLL
      for (int b = 0; b < kBlocks; ++b) sums[m][b][0] = sums[m][b][1] = hn::Zero(DWSums());
    }
    for (int64_t s = 0; s < n_slots; s += 2) {
      if (part == 0 && s % kLanes == 0) fetch(s, kLanes);
      const uint8_t *first = slots[s] + offset, *second = slots[s + 1] + offset;
      WEIR_UNROLL
      for (int b = 0; b < kBlocks; ++b) {
        hn::Vec<DW> codes[2];
        LoadPairs<Block>(first + b * sizeof(Block), second + b * sizeof(Block), part, codes);
        WEIR_UNROLL
        for (int m = 0; m < kM; ++m) {
          const hn::Vec<DW> pair = weight[m][b].Pair(s);
          WEIR_UNROLL
          for (int j = 0; j < 2; ++j) sums[m][b][j] = AddPairs(pair, codes[j], sums[m][b][j]);
        }
      }
    }
    WEIR_UNROLL
    for (int m = 0; m < kM; ++m) {
      WEIR_UNROLL
      for (int b = 0; b < kBlocks; ++b) {
        const hn::Vec<DF> scale = hn::Set(d, weight[m][b].scale);
        WEIR_UNROLL
        for (int j = 0; j < 2; ++j) {
          float* at = out + m * out_stride + b * Block::kElements + j * Block::kElements / 2 + part * kLanes;
          hn::StoreU(hn::MulAdd(hn::ConvertTo(d, sums[m][b][j]), scale, hn::LoadU(d, at)), d, at);
        }
      }
    }
  }
}

}  // namespace
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // WEIR_MULTIPLIES_WORDS
#endif  // per-target guard
