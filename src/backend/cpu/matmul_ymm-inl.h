// SPDX-License-Identifier: Apache-2.0
// Integer dot products with VNNI instructions on vectors of 256 bits, and the tile of products over them: what
// processors with AVX-VNNI but without AVX-512 have. Included by coded_product.cc for AVX2, once for each encoding of
// the instruction: ymm_dots() (simd.h) checks the machine. The second encoding is that of AVX-512; machines that have
// it test the code.

#include <immintrin.h>

#include "backend/cpu/matmul_blocks-inl.h"
#include "backend/cpu/unroll.h"

// vpdpbusd: four products of unsigned codes and signed activations added into 32 bits.
#define WEIR_YMM_DOTS(Name, dpbusd)                                                                       \
  struct Name {                                                                                           \
    template <int kBits>                                                                                  \
    static constexpr int kVecs = 2;                                                                       \
    static constexpr bool kUnpacks = false;                                                               \
                                                                                                          \
    template <int kBits, int kOffsetLog2, int kRows, int kVecs>                                           \
    static HWY_INLINE void Block(const uint8_t* codes, int col, int first, int last, const ActBlock* act, \
                                 int64_t act_stride, VI (&dot)[kRows][kVecs]) {                           \
      WEIR_UNROLL                                                                                         \
      for (int r = 0; r < kRows; ++r) {                                                                   \
        const VI start = OffsetSum<kOffsetLog2>(act[r * act_stride], first, last);                        \
        WEIR_UNROLL                                                                                       \
        for (int v = 0; v < kVecs; ++v) dot[r][v] = start;                                                \
      }                                                                                                   \
      WEIR_UNROLL                                                                                         \
      for (int i = 0; i < 8; ++i) {                                                                       \
        const int g = first + i;                                                                          \
        if (g >= last) break;                                                                             \
        hn::Vec<DU8> w[kVecs];                                                                            \
        WEIR_UNROLL                                                                                       \
        for (int v = 0; v < kVecs; ++v) w[v] = LoadGroup<kBits>(codes, g, 4 * (col + v * kLanes));        \
        WEIR_UNROLL                                                                                       \
        for (int r = 0; r < kRows; ++r) {                                                                 \
          const VI a = hn::Set(DI(), FourActivations(act[r * act_stride], g));                            \
          WEIR_UNROLL                                                                                     \
          for (int v = 0; v < kVecs; ++v) dot[r][v] = VI{dpbusd(dot[r][v].raw, w[v].raw, a.raw)};         \
        }                                                                                                 \
      }                                                                                                   \
    }                                                                                                     \
  };

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avxvnni")
namespace weir::cpu::HWY_NAMESPACE::ymm_vex {
WEIR_YMM_DOTS(Dpbusd, _mm256_dpbusd_avx_epi32)
#include "backend/cpu/matmul_block_tile-inl.h"
}  // namespace weir::cpu::HWY_NAMESPACE::ymm_vex
HWY_POP_ATTRIBUTES

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512f,avx512vl,avx512vnni")
namespace weir::cpu::HWY_NAMESPACE::ymm_evex {
WEIR_YMM_DOTS(Dpbusd, _mm256_dpbusd_epi32)
#include "backend/cpu/matmul_block_tile-inl.h"
}  // namespace weir::cpu::HWY_NAMESPACE::ymm_evex
HWY_POP_ATTRIBUTES

#undef WEIR_YMM_DOTS
