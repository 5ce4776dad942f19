// SPDX-License-Identifier: Apache-2.0
// Integer dot products with Arm's dot-product and matrix instructions, and the tile of products over them. The build's
// own target need not have these: arm_dots() (simd.h) checks the machine.

#include <arm_neon.h>

#include "backend/cpu/matmul_blocks-inl.h"
#include "backend/cpu/unroll.h"

HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+crypto+dotprod")
namespace weir::cpu::HWY_NAMESPACE::dotprod {

// sdot: four signed products added into 32 bits. Codes of 8 bits are made signed by removing their offset, the others
// fit.
struct Sdot {
  template <int kBits>
  static constexpr int kVecs = 1;
  static constexpr bool kUnpacks = false;

  template <int kBits, int kOffsetLog2, int kRows, int kVecs>
  static HWY_INLINE void Block(const uint8_t* codes, int col, int first, int last, const ActBlock* act,
                               int64_t act_stride, VI (&dot)[kRows][kVecs]) {
    const DI di;
    const DU8 du8;
    WEIR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const VI start = OffsetSum < CodeBits(kBits) == 8 ? -1 : kOffsetLog2 > (act[r * act_stride], first, last);
      WEIR_UNROLL
      for (int v = 0; v < kVecs; ++v) dot[r][v] = start;
    }
    WEIR_UNROLL
    for (int g = first; g < last; ++g) {
      hn::Vec<DU8> w[kVecs];
      WEIR_UNROLL
      for (int v = 0; v < kVecs; ++v) {
        w[v] = LoadGroup<kBits>(codes, g, 4 * (col + v * kLanes));
        if constexpr (CodeBits(kBits) == 8) w[v] = hn::Xor(w[v], hn::Set(du8, 0x80));
      }
      WEIR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const VI a = hn::Set(di, FourActivations(act[r * act_stride], g));
        WEIR_UNROLL
        for (int v = 0; v < kVecs; ++v) {
          dot[r][v] = VI{vdotq_s32(dot[r][v].raw, vreinterpretq_s8_u8(w[v].raw), vreinterpretq_s8_s32(a.raw))};
        }
      }
    }
  }
};

#include "backend/cpu/matmul_block_tile-inl.h"

}  // namespace weir::cpu::HWY_NAMESPACE::dotprod
HWY_POP_ATTRIBUTES

HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+crypto+dotprod+i8mm")
namespace weir::cpu::HWY_NAMESPACE::i8mm {

// smmla: two rows of eight activations times two columns of eight codes, for pairs of rows; sdot handles a single row.
struct Smmla {
  template <int kBits>
  static constexpr int kVecs = 1;
  static constexpr bool kUnpacks = false;

  template <int kBits, int kOffsetLog2, int kRows, int kVecs>
  static HWY_INLINE void Block(const uint8_t* codes, int col, int first, int last, const ActBlock* act,
                               int64_t act_stride, VI (&dot)[kRows][kVecs]) {
    static_assert(kRows % 2 == 0);
    const DU8 du8;
    WEIR_UNROLL
    for (int v = 0; v < kVecs; ++v) {
      int32x4_t sum[kRows / 2][2];  // of columns 0, 1 and of 2, 3: those of the pair's first row, then of its second
      WEIR_UNROLL
      for (int r = 0; r < kRows; r += 2) {
        const VI even = OffsetSum < CodeBits(kBits) == 8 ? -1 : kOffsetLog2 > (act[r * act_stride], first, last);
        const VI odd = OffsetSum < CodeBits(kBits) == 8 ? -1 : kOffsetLog2 > (act[(r + 1) * act_stride], first, last);
        sum[r / 2][0] = sum[r / 2][1] = vcombine_s32(vget_low_s32(even.raw), vget_low_s32(odd.raw));
      }
      WEIR_UNROLL
      for (int g = first; g < last; g += 2) {
        auto w0 = LoadGroup<kBits>(codes, g, 4 * (col + v * kLanes));
        auto w1 = LoadGroup<kBits>(codes, g + 1, 4 * (col + v * kLanes));
        if constexpr (CodeBits(kBits) == 8) {
          w0 = hn::Xor(w0, hn::Set(du8, 0x80));
          w1 = hn::Xor(w1, hn::Set(du8, 0x80));
        }
        const uint32x4_t k0 = vreinterpretq_u32_u8(w0.raw), k4 = vreinterpretq_u32_u8(w1.raw);
        const int8x16_t columns[2] = {vreinterpretq_s8_u32(vzip1q_u32(k0, k4)),
                                      vreinterpretq_s8_u32(vzip2q_u32(k0, k4))};
        WEIR_UNROLL
        for (int r = 0; r < kRows; r += 2) {
          const int8x16_t rows =
              vcombine_s8(vld1_s8(act[r * act_stride].q + 4 * g), vld1_s8(act[(r + 1) * act_stride].q + 4 * g));
          sum[r / 2][0] = vmmlaq_s32(sum[r / 2][0], rows, columns[0]);
          sum[r / 2][1] = vmmlaq_s32(sum[r / 2][1], rows, columns[1]);
        }
      }
      WEIR_UNROLL
      for (int r = 0; r < kRows; r += 2) {
        dot[r][v] = VI{vcombine_s32(vget_low_s32(sum[r / 2][0]), vget_low_s32(sum[r / 2][1]))};
        dot[r + 1][v] = VI{vcombine_s32(vget_high_s32(sum[r / 2][0]), vget_high_s32(sum[r / 2][1]))};
      }
    }
  }
};

#include "backend/cpu/matmul_block_tile-inl.h"

}  // namespace weir::cpu::HWY_NAMESPACE::i8mm
HWY_POP_ATTRIBUTES
