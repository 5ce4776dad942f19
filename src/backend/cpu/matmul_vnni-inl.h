// SPDX-License-Identifier: Apache-2.0
// Products of packed block formats with VNNI instructions: vpdpbusd multiplies 64 unsigned codes with 64 signed
// activations and adds groups of four into 16 int32 lanes, one lane per output row.
//
// Included by coded_product.cc, once for every target with AVX-512 VNNI: later versions of Highway have several. The
// portable twin in that file computes the same integers.

#include <immintrin.h>

#include "backend/cpu/coded_weights.h"
#include "backend/cpu/pack.h"
#include "backend/cpu/panel_prefetch.h"
#include "backend/cpu/unroll.h"

// Highway's AVX3_DL implies the instruction (it is only selected where CPUID reports it), but its compiler flags enable
// only the VEX form.
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni")
namespace weir::cpu::HWY_NAMESPACE::vnni {

// Four consecutive activations of a row, in every lane.
HWY_INLINE __m512i Broadcast4(const int8_t* q) {
  int32_t four;
  __builtin_memcpy(&four, q, 4);
  return _mm512_set1_epi32(four);
}

HWY_INLINE __m512 LoadHalf16(const uint8_t* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

HWY_INLINE __m512 LoadU8x16(const uint8_t* from) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}

HWY_INLINE __m512 LoadS8x16(const uint8_t* from) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}

// Codes of groups g (`lo`) and g + 4 (`hi`) of a block, g in 0 .. 3.
template <int kBits>
HWY_INLINE void LoadCodes(const uint8_t* block, int g, __m512i& lo, __m512i& hi) {
  if constexpr (kBits == 8) {
    lo = _mm512_loadu_si512(block + 64 * g);
    hi = _mm512_loadu_si512(block + 64 * (g + 4));
  } else {
    const __m512i raw = _mm512_loadu_si512(block + 64 * g);
    const __m512i nibble = _mm512_set1_epi8(15);
    lo = _mm512_and_si512(raw, nibble);
    hi = _mm512_and_si512(_mm512_srli_epi16(raw, 4), nibble);
    if constexpr (kBits == 5) {
      // Bits g and g + 4 of every byte move to bit 4.
      const __m512i fifth = _mm512_set1_epi8(16), bits = _mm512_loadu_si512(block + 256);
      lo = _mm512_or_si512(lo, _mm512_and_si512(_mm512_slli_epi16(bits, 4 - g), fifth));
      hi = _mm512_or_si512(hi, _mm512_and_si512(_mm512_srli_epi16(bits, g), fifth));
    }
    if constexpr (kBits == 6) {
      // Bits 2 g, 2 g + 1 of every byte move to bits 4, 5; bits that 16-bit shifts bring in from a neighbour are masked
      // off.
      const __m512i upper = _mm512_set1_epi8(0x30);
      __m512i a = _mm512_loadu_si512(block + 256), b = _mm512_loadu_si512(block + 320);
      a = g < 2 ? _mm512_slli_epi16(a, 4 - 2 * g) : _mm512_srli_epi16(a, 2 * g - 4);
      b = g < 2 ? _mm512_slli_epi16(b, 4 - 2 * g) : _mm512_srli_epi16(b, 2 * g - 4);
      lo = _mm512_or_si512(lo, _mm512_and_si512(a, upper));
      hi = _mm512_or_si512(hi, _mm512_and_si512(b, upper));
    }
    if constexpr (kBits == kFloat4Bits || kBits == kIq4Bits) {
      alignas(16) static constexpr auto kCodes =
          LevelCodes(kBits == kFloat4Bits ? LevelKind::kFloat4 : LevelKind::kIq4);
      const __m512i table = _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(kCodes.data())));
      lo = _mm512_shuffle_epi8(table, lo);
      hi = _mm512_shuffle_epi8(table, hi);
    }
  }
}

// PowerScale() of 16 bytes (quant/codes.h).
HWY_INLINE __m512 LoadPowers16(const uint8_t* from) {
  const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  const __m512i one = _mm512_set1_epi32(1);
  const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, one), 23);
  const __m512i subnormal = _mm512_slli_epi32(_mm512_add_epi32(e, one), 21);
  return _mm512_castsi512_ps(_mm512_mask_mov_epi32(subnormal, _mm512_cmpgt_epi32_mask(e, one), normal));
}

// Scales of block b: scale[h] for the h-th 16 along k (one for all 32 unless the format has two), `add` the minimum.
template <ScaleKind kScales>
HWY_INLINE void LoadScales(const uint8_t* scales, int64_t b, __m512* scale, __m512& add) {
  if constexpr (kScales == ScaleKind::kHalf) {
    scale[0] = LoadHalf16(scales + b * 32);
  } else if constexpr (kScales == ScaleKind::kHalfMin) {
    scale[0] = LoadHalf16(scales + b * 64);
    add = LoadHalf16(scales + b * 64 + 32);
  } else if constexpr (kScales == ScaleKind::kSuper) {
    const uint8_t* super = scales + b / kSuperBlocks * (64 + kSuperBlocks * 32);
    const uint8_t* sub = super + 64 + b % kSuperBlocks * 32;
    scale[0] = _mm512_mul_ps(LoadHalf16(super), LoadU8x16(sub));
    add = _mm512_sub_ps(_mm512_setzero_ps(), _mm512_mul_ps(LoadHalf16(super + 32), LoadU8x16(sub + 16)));
  } else if constexpr (kScales == ScaleKind::kSuper32) {
    const uint8_t* super = scales + b / kSuperBlocks * (32 + kSuperBlocks * 16);
    scale[0] = _mm512_mul_ps(LoadHalf16(super), LoadS8x16(super + 32 + b % kSuperBlocks * 16));
  } else if constexpr (kScales == ScaleKind::kHalves) {
    scale[0] = LoadHalf16(scales + b * 64);
    scale[1] = LoadHalf16(scales + b * 64 + 32);
  } else if constexpr (kScales == ScaleKind::kPower) {
    scale[0] = LoadPowers16(scales + b * 16);
  } else {
    const uint8_t* super = scales + b / kSuperBlocks * (32 + kSuperBlocks * 32);
    const uint8_t* sub = super + 32 + b % kSuperBlocks * 32;
    const __m512 d = LoadHalf16(super);
    scale[0] = _mm512_mul_ps(d, LoadS8x16(sub));
    scale[1] = _mm512_mul_ps(d, LoadS8x16(sub + 16));
  }
}

// kRows rows times kPanels panels, all of k.
template <PackLayout kLayout, int kRows, int kPanels>
HWY_INLINE void Tile(const ProductArgs& args, int64_t panel, int64_t row) {
  constexpr bool kMin = kLayout.has_addend();
  constexpr int kHalves = kLayout.has_two() ? 2 : 1;
  const int64_t n_blocks = args.w->n_blocks();
  const ActBlock* act = args.act + row * n_blocks;
  const uint8_t* codes[kPanels];
  const uint8_t* scales[kPanels];
  WEIR_UNROLL
  for (int p = 0; p < kPanels; ++p) {
    codes[p] = args.w->panel(args.first_panel + panel + p);
    scales[p] = codes[p] + n_blocks * kLayout.code_bytes();
  }
  __m512 sum[kRows][kPanels];
  WEIR_UNROLL
  for (int r = 0; r < kRows; ++r) {
    WEIR_UNROLL
    for (int p = 0; p < kPanels; ++p) sum[r][p] = _mm512_setzero_ps();
  }
  const PanelPrefetch<kLayout> prefetch(n_blocks, args.w->panel_bytes(), kPanels);
  for (int64_t b = 0; b < n_blocks; ++b, ++act) {
    // Later rows find them in a cache. Four rows and more take so long over a panel that the next one is fetched. Codes
    // of 8 bits, twice as many, come no sooner with several rows: measured.
    if (row == 0 && (kRows == 1 || kLayout.bits < 8)) {
      WEIR_UNROLL
      for (int p = 0; p < kPanels; ++p) {
        if constexpr (kRows >= 4) {
          prefetch.FetchNext(codes[p], scales[p], b);
        } else {
          prefetch.Fetch(codes[p], scales[p], b);
        }
      }
    }
    __m512 scale[kPanels][2];
    __m512 add[kPanels];
    WEIR_UNROLL
    for (int p = 0; p < kPanels; ++p) LoadScales<kLayout.scales>(scales[p], b, scale[p], add[p]);
    WEIR_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      __m512i dot[kRows][kPanels];
      WEIR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        __m512i start = _mm512_setzero_si512();
        if constexpr (kLayout.offset_log2 >= 0) {
          const ActBlock& a = act[r * n_blocks];
          const int32_t negated = kHalves == 1 ? a.neg_sum : half == 0 ? a.neg_sum_lo : a.neg_sum - a.neg_sum_lo;
          start = _mm512_slli_epi32(_mm512_set1_epi32(negated), kLayout.offset_log2);
        }
        WEIR_UNROLL
        for (int p = 0; p < kPanels; ++p) dot[r][p] = start;
      }
      WEIR_UNROLL
      for (int g = 0; g < 4; ++g) {
        __m512i lo[kPanels], hi[kPanels];
        WEIR_UNROLL
        for (int p = 0; p < kPanels; ++p) LoadCodes<UnpackedBits(kLayout)>(codes[p], g, lo[p], hi[p]);
        WEIR_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const int8_t* q = act[r * n_blocks].q;
          if (kHalves == 1 || half == 0) {
            const __m512i a = Broadcast4(q + 4 * g);
            WEIR_UNROLL
            for (int p = 0; p < kPanels; ++p) dot[r][p] = _mm512_dpbusd_epi32(dot[r][p], lo[p], a);
          }
          if (kHalves == 1 || half == 1) {
            const __m512i a = Broadcast4(q + 16 + 4 * g);
            WEIR_UNROLL
            for (int p = 0; p < kPanels; ++p) dot[r][p] = _mm512_dpbusd_epi32(dot[r][p], hi[p], a);
          }
        }
      }
      WEIR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const __m512 d = _mm512_set1_ps(act[r * n_blocks].d);
        WEIR_UNROLL
        for (int p = 0; p < kPanels; ++p) {
          const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(dot[r][p]), scale[p][half]);
          sum[r][p] = _mm512_fmadd_ps(scaled, d, sum[r][p]);
          if constexpr (kMin) sum[r][p] = _mm512_fmadd_ps(add[p], _mm512_set1_ps(act[r * n_blocks].d_sum), sum[r][p]);
        }
      }
    }
    WEIR_UNROLL
    for (int p = 0; p < kPanels; ++p) codes[p] += kLayout.code_bytes();
  }
  WEIR_UNROLL
  for (int p = 0; p < kPanels; ++p) {
    const int64_t first_col = (args.first_panel + panel + p) * kPanel;
    const int64_t n_cols = args.w->n_out() - first_col;
    const __mmask16 mask = n_cols >= kPanel ? 0xffff : static_cast<__mmask16>((1u << n_cols) - 1);
    WEIR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      float* y = args.y + (row + r) * args.y_stride + (panel + p) * kPanel;
      __m512 value = sum[r][p];
      if (args.bias != nullptr) {
        value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, args.bias + (panel + p) * kPanel));
      }
      if (args.accumulate) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, y));
      _mm512_mask_storeu_ps(y, mask, value);
    }
  }
}

// All rows times the panels from `panel` on, in groups of kPanels; returns the first remaining panel.
template <PackLayout kLayout, int kPanels>
int64_t Panels(const ProductArgs& args, int64_t panel) {
  for (; panel + kPanels <= args.n_panels; panel += kPanels) {
    int64_t row = 0;
    if constexpr (kPanels <= 2) {
      for (; row + 6 <= args.n_rows; row += 6) Tile<kLayout, 6, kPanels>(args, panel, row);
    }
    switch (args.n_rows - row) {
      case 1:
        Tile<kLayout, 1, kPanels>(args, panel, row);
        break;
      case 2:
        Tile<kLayout, 2, kPanels>(args, panel, row);
        break;
      case 3:
        Tile<kLayout, 3, kPanels>(args, panel, row);
        break;
      case 4:
        if constexpr (kPanels <= 2) Tile<kLayout, 4, kPanels>(args, panel, row);
        break;
      case 5:
        if constexpr (kPanels <= 2) Tile<kLayout, 5, kPanels>(args, panel, row);
        break;
      default:
        break;
    }
  }
  return panel;
}

template <PackLayout kLayout>
void Quantised(const ProductArgs& args) {
  int64_t panel = 0;
  // With two scales a block, four panels of several rows do not fit the registers.
  if (args.n_rows <= (kLayout.has_two() ? 1 : 3)) {
    panel = Panels<kLayout, 4>(args, panel);
  } else {
    panel = Panels<kLayout, 2>(args, panel);
  }
  Panels<kLayout, 1>(args, panel);
}

}  // namespace weir::cpu::HWY_NAMESPACE::vnni
HWY_POP_ATTRIBUTES
