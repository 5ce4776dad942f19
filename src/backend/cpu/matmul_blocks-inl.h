// SPDX-License-Identifier: Apache-2.0
// Products of packed block formats without AVX-512 VNNI: one tile, and for every instruction set the integer dot
// products it uses; compiled once per target.
#if defined(WEIR_BACKEND_CPU_MATMUL_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_BACKEND_CPU_MATMUL_BLOCKS_INL_H_
#undef WEIR_BACKEND_CPU_MATMUL_BLOCKS_INL_H_
#else
#define WEIR_BACKEND_CPU_MATMUL_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "backend/cpu/coded_weights.h"
#include "backend/cpu/matmul_tile-inl.h"
#include "backend/cpu/panel_prefetch.h"
#include "backend/cpu/unroll.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Dots::Block<kBits, kOffsetLog2, kRows, kVecs>(codes, col, first, last, act, act_stride, dot) sets dot[r][v] to the
// sum over groups first .. last - 1 of (code - offset) * activation, for kLanes columns of a block from column `col + v
// * kLanes` on. Integers are exact, so every Dots gives the same bits. Dots::kVecs<kBits> is the number of vectors
// whose sums fit the registers beside each other when kRows is 4.

// Initial value of the sum, so that the offset need not be subtracted from every code.
template <int kOffsetLog2>
HWY_INLINE VI OffsetSum(const ActBlock& a, int first, int last) {
  const DI di;
  if constexpr (kOffsetLog2 < 0) {
    return hn::Zero(di);
  } else {
    const int32_t sum = last - first == 8 ? a.neg_sum : first == 0 ? a.neg_sum_lo : a.neg_sum - a.neg_sum_lo;
    return hn::ShiftLeft<kOffsetLog2>(hn::Set(di, sum));
  }
}

HWY_INLINE int32_t FourActivations(const ActBlock& a, int group) {
  int32_t four;
  std::memcpy(&four, a.q + 4 * group, 4);
  return four;
}

HWY_INLINE VF LoadHalfs(const uint8_t* from) { return LoadPlain<DType::kF16>(from); }

// kLanes bytes as integers.
#if HWY_TARGET == HWY_SCALAR
template <typename T>
HWY_INLINE VI LoadIntegers(const uint8_t* from) {
  return hn::Set(DI(), static_cast<T>(*from));
}
#else
template <typename T>
HWY_INLINE VI LoadIntegers(const uint8_t* from) {
  const hn::Rebind<T, DF> d;
  return hn::PromoteTo(DI(), hn::LoadU(d, reinterpret_cast<const T*>(from)));
}
#endif

template <typename T>
HWY_INLINE VF LoadBytes(const uint8_t* from) {
  return hn::ConvertTo(DF(), LoadIntegers<T>(from));
}

// PowerScale() of bytes (quant/codes.h).
HWY_INLINE VF LoadPowers(const uint8_t* from) {
  const DI di;
  const VI e = LoadIntegers<uint8_t>(from), one = hn::Set(di, 1);
  const VI normal = hn::ShiftLeft<23>(hn::Sub(e, one)), subnormal = hn::ShiftLeft<21>(hn::Add(e, one));
  return hn::BitCast(DF(), hn::IfThenElse(hn::Gt(e, one), normal, subnormal));
}

#if HWY_TARGET != HWY_SCALAR
using DI16 = hn::Repartition<int16_t, DI>;
using VI16 = hn::Vec<DI16>;
using DU8 = hn::Repartition<uint8_t, DI>;

// 4 * kLanes codes of a group of 4 along k, from byte `at` of the group's 64.
template <int kBits>
HWY_INLINE hn::Vec<DU8> LoadGroup(const uint8_t* block, int group, int at) {
  const DU8 du8;
  if constexpr (kBits == 8) {
    return hn::LoadU(du8, block + 64 * group + at);
  } else {
    const hn::Repartition<uint16_t, DU8> du16;
    const auto raw = hn::LoadU(du8, block + 64 * (group % 4) + at);
    auto codes = group < 4 ? hn::And(raw, hn::Set(du8, 15)) : hn::ShiftRight<4>(raw);
    if constexpr (kBits == 5) {
      // Bits that 16-bit shifts bring in from a neighbour are masked off.
      const auto wide = hn::BitCast(du16, hn::LoadU(du8, block + 256 + at));
      const auto moved = group < 4 ? hn::ShiftLeftSame(wide, 4 - group) : hn::ShiftRightSame(wide, group - 4);
      codes = hn::Or(codes, hn::And(hn::BitCast(du8, moved), hn::Set(du8, 16)));
    }
    if constexpr (kBits == kFloat4Bits || kBits == kIq4Bits) {
      alignas(16) static constexpr auto kCodes =
          LevelCodes(kBits == kFloat4Bits ? LevelKind::kFloat4 : LevelKind::kIq4);
      codes = hn::TableLookupBytes(hn::LoadDup128(du8, kCodes.data()), codes);
    }
    if constexpr (kBits == 6) {
      const auto wide = hn::BitCast(du16, hn::LoadU(du8, block + 256 + 64 * (group / 4) + at));
      const int j = group % 4;
      const auto moved = j < 2 ? hn::ShiftLeftSame(wide, 4 - 2 * j) : hn::ShiftRightSame(wide, 2 * j - 4);
      codes = hn::Or(codes, hn::And(hn::BitCast(du8, moved), hn::Set(du8, 0x30)));
    }
    return codes;
  }
}
#endif

#if HWY_TARGET == HWY_SCALAR

struct OneByOne {
  template <int kBits>
  static constexpr int kVecs = 1;
  static constexpr bool kUnpacks = false;

  template <int kBits, int kOffsetLog2, int kRows, int kVecs>
  static HWY_INLINE void Block(const uint8_t* codes, int col, int first, int last, const ActBlock* act,
                               int64_t act_stride, VI (&dot)[kRows][kVecs]) {
    for (int r = 0; r < kRows; ++r) {
      const ActBlock& a = act[r * act_stride];
      for (int v = 0; v < kVecs; ++v) {
        int32_t sum = 0;
        for (int k = 4 * first; k < 4 * last; ++k) sum += GetCode(kBits, codes, col + v, k) * a.q[k];
        dot[r][v] = hn::Add(OffsetSum<kOffsetLog2>(a, first, last), hn::Set(DI(), sum));
      }
    }
  }
};
using BestDots = OneByOne;

#elif HWY_ARCH_X86 && HWY_TARGET <= HWY_SSSE3  // the targets above have no pmaddubsw: SSE2, or EMU128 in its place

HWY_INLINE __m128i MulPairs(__m128i codes, __m128i q) { return _mm_maddubs_epi16(codes, q); }
HWY_INLINE __m128i SumPairs(__m128i pairs, __m128i factor) { return _mm_madd_epi16(pairs, factor); }
HWY_INLINE __m128i Magnitudes(__m128i w) { return _mm_abs_epi8(w); }
// q where w is positive, -q where it is negative; anything where it is zero.
HWY_INLINE __m128i WithSigns(__m128i q, __m128i w) { return _mm_sign_epi8(q, w); }
#if HWY_TARGET <= HWY_AVX2
HWY_INLINE __m256i MulPairs(__m256i codes, __m256i q) { return _mm256_maddubs_epi16(codes, q); }
HWY_INLINE __m256i SumPairs(__m256i pairs, __m256i factor) { return _mm256_madd_epi16(pairs, factor); }
HWY_INLINE __m256i Magnitudes(__m256i w) { return _mm256_abs_epi8(w); }
HWY_INLINE __m256i WithSigns(__m256i q, __m256i w) { return _mm256_sign_epi8(q, w); }
#endif
#if HWY_TARGET <= HWY_AVX3
HWY_INLINE __m512i MulPairs(__m512i codes, __m512i q) { return _mm512_maddubs_epi16(codes, q); }
HWY_INLINE __m512i SumPairs(__m512i pairs, __m512i factor) { return _mm512_madd_epi16(pairs, factor); }
HWY_INLINE __m512i Magnitudes(__m512i w) { return _mm512_abs_epi8(w); }
HWY_INLINE __m512i WithSigns(__m512i q, __m512i w) {
  return _mm512_mask_sub_epi8(q, _mm512_movepi8_mask(w), _mm512_setzero_si512(), q);
}
#endif

// pmaddubsw: unsigned codes times signed activations, two products added in 16 bits. Sums stay in 16 bits as long as
// they provably fit. Those of 8-bit codes would not: these become magnitudes, activations take their signs, and two
// products fit.
//
// Codes come from a Source: Codes(group, vector), of 8 bits with their offset removed, whose Magnitude() follows.
struct BytePairs {
  template <int kBits>
  static constexpr int kVecs = kVectors % 2 == 0 ? 2 : 1;
  static constexpr bool kUnpacks = true;  // Panels() takes calls of many rows

  template <int kBits>
  struct Packed {
    const uint8_t* codes;
    int col;

    HWY_INLINE hn::Vec<DU8> Codes(int group, int v) const {
      const hn::Vec<DU8> w = LoadGroup<kBits>(codes, group, 4 * (col + v * kLanes));
      return CodeBits(kBits) == 8 ? hn::Xor(w, hn::Set(DU8(), 0x80)) : w;
    }
    HWY_INLINE hn::Vec<DU8> Magnitude(int, int, hn::Vec<DU8> w) const { return {Magnitudes(w.raw)}; }
  };

  template <int kBits, int kOffsetLog2, int kRows, int kVecs>
  static HWY_INLINE void Block(const uint8_t* codes, int col, int first, int last, const ActBlock* act,
                               int64_t act_stride, VI (&dot)[kRows][kVecs]) {
    Sum<CodeBits(kBits), kOffsetLog2>(Packed<kBits>{codes, col}, first, last, act, act_stride, dot);
  }

  template <int kCodeBits, int kOffsetLog2, class Source, int kRows, int kVecs>
  static HWY_INLINE void Sum(const Source& source, int first, int last, const ActBlock* act, int64_t act_stride,
                             VI (&dot)[kRows][kVecs]) {
    if constexpr (kCodeBits == 8) {
      static_assert(kOffsetLog2 == 7 && 2 * 127 * 128 <= 32767);
      SignedSum(source, first, last, act, act_stride, dot);
    } else {
      constexpr int kGroups = kCodeBits == 4 ? 8 : kCodeBits == 5 ? 4 : 2;  // whose sum fits 16 bits
      static_assert(kGroups * 2 * 127 * ((1 << kCodeBits) - 1) <= 32767);
      UnsignedSum<kGroups, kOffsetLog2>(source, first, last, act, act_stride, dot);
    }
  }

  template <int kGroups, int kOffsetLog2, class Source, int kRows, int kVecs>
  static HWY_INLINE void UnsignedSum(const Source& source, int first, int last, const ActBlock* act, int64_t act_stride,
                                     VI (&dot)[kRows][kVecs]) {
    const DI16 di16;
    WEIR_UNROLL
    for (int from = first; from < last; from += kGroups) {
      VI16 pairs[kRows][kVecs];
      WEIR_UNROLL
      for (int i = 0; i < kGroups; ++i) {
        const int g = from + i;
        if (g >= last) break;
        hn::Vec<DU8> w[kVecs];
        WEIR_UNROLL
        for (int v = 0; v < kVecs; ++v) w[v] = source.Codes(g, v);
        WEIR_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const VI a = hn::Set(DI(), FourActivations(act[r * act_stride], g));
          WEIR_UNROLL
          for (int v = 0; v < kVecs; ++v) {
            const VI16 products{MulPairs(w[v].raw, a.raw)};
            pairs[r][v] = i == 0 ? products : hn::Add(pairs[r][v], products);
            WEIR_IN_ORDER(pairs[r][v]);
          }
        }
      }
      WEIR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        WEIR_UNROLL
        for (int v = 0; v < kVecs; ++v) {
          const VI sum = from == first ? OffsetSum<kOffsetLog2>(act[r * act_stride], first, last) : dot[r][v];
          dot[r][v] = hn::Add(sum, VI{SumPairs(pairs[r][v].raw, hn::Set(di16, int16_t{1}).raw)});
        }
      }
    }
  }

  template <class Source, int kRows, int kVecs>
  static HWY_INLINE void SignedSum(const Source& source, int first, int last, const ActBlock* act, int64_t act_stride,
                                   VI (&dot)[kRows][kVecs]) {
    const DI16 di16;
    WEIR_UNROLL
    for (int g = first; g < last; ++g) {
      hn::Vec<DU8> w[kVecs], magnitude[kVecs];
      WEIR_UNROLL
      for (int v = 0; v < kVecs; ++v) {
        w[v] = source.Codes(g, v);
        magnitude[v] = source.Magnitude(g, v, w[v]);
      }
      WEIR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const VI a = hn::Set(DI(), FourActivations(act[r * act_stride], g));
        WEIR_UNROLL
        for (int v = 0; v < kVecs; ++v) {
          const auto pairs = MulPairs(magnitude[v].raw, WithSigns(a.raw, w[v].raw));
          const VI sum{SumPairs(pairs, hn::Set(di16, int16_t{1}).raw)};
          dot[r][v] = g == first ? sum : hn::Add(dot[r][v], sum);
          WEIR_IN_ORDER(dot[r][v]);
        }
      }
    }
  }

  // All panels times rows 0 to n_rows - 1, a multiple of four (matmul_unpacked-inl.h).
  template <PackLayout kLayout>
  static void Panels(const ProductArgs& args, int64_t n_rows);
};
using BestDots = BytePairs;

#else

// Adds the two 16-bit halves of every 32-bit lane.
HWY_INLINE VI AddHalves(VI sum, VI16 pairs) {
  const VI both = hn::BitCast(DI(), pairs);
  return hn::Add(sum, hn::Add(hn::ShiftRight<16>(both), hn::ShiftRight<16>(hn::ShiftLeft<16>(both))));
}

// Products in 16 bits, for any vector unit. Their sums stay in 16 bits as long as they provably fit: kGroups groups of
// two products per lane. 8-bit codes are made signed by removing their offset.
struct Words {
  template <int kBits>
  static constexpr int kVecs = 1;
  static constexpr bool kUnpacks = false;

  template <int kBits, int kOffsetLog2, int kRows, int kVecs>
  static HWY_INLINE void Block(const uint8_t* codes, int col, int first, int last, const ActBlock* act,
                               int64_t act_stride, VI (&dot)[kRows][kVecs]) {
    constexpr int kWordBits = CodeBits(kBits);
    constexpr int kGroups = kWordBits <= 5 ? 4 : kWordBits == 6 ? 2 : 1;
    static_assert(kWordBits == 8 || kGroups * 2 * 127 * ((1 << kWordBits) - 1) <= 32767);
    const DI di;
    const DI16 di16;
    WEIR_UNROLL
    for (int v = 0; v < kVecs; ++v) {
      WEIR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        dot[r][v] = OffsetSum < kWordBits == 8 ? -1 : kOffsetLog2 > (act[r * act_stride], first, last);
      }
      WEIR_UNROLL
      for (int from = first; from < last; from += kGroups) {
        VI16 pairs[kRows];
        WEIR_UNROLL
        for (int g = from; g < from + kGroups; ++g) {
          VI16 w = hn::BitCast(di16, LoadGroup<kBits>(codes, g, 4 * (col + v * kLanes)));
          VI16 even;  // bytes 0 and 2 of every column
          if constexpr (kWordBits == 8) {
            w = hn::Xor(w, hn::Set(di16, static_cast<int16_t>(0x8080)));
            even = hn::ShiftRight<8>(hn::ShiftLeft<8>(w));
          } else {
            even = hn::And(w, hn::Set(di16, 0xff));
          }
          const VI16 odd = hn::ShiftRight<8>(w);  // bytes 1 and 3
          WEIR_UNROLL
          for (int r = 0; r < kRows; ++r) {
            const VI16 a = hn::BitCast(di16, hn::Set(di, FourActivations(act[r * act_stride], g)));
            const VI16 products =
                hn::Add(hn::Mul(even, hn::ShiftRight<8>(hn::ShiftLeft<8>(a))), hn::Mul(odd, hn::ShiftRight<8>(a)));
            pairs[r] = g == from ? products : hn::Add(pairs[r], products);
          }
        }
        WEIR_UNROLL
        for (int r = 0; r < kRows; ++r) dot[r][v] = AddHalves(dot[r][v], pairs[r]);
      }
    }
  }
};
using BestDots = Words;

#endif

#include "backend/cpu/matmul_block_tile-inl.h"

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
