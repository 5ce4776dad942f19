// SPDX-License-Identifier: Apache-2.0
// Integer dot products with Arm's dot-product and matrix instructions, and the tile of products over them. The build's
// own target need not have these: arm_dots() (simd.h) checks the machine.

#include <arm_neon.h>

#include "backend/cpu/matmul_blocks-inl.h"
#include "backend/cpu/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

// Codes of a group as signed bytes, those of 8 bits without their offset.
template <int kBits>
HWY_INLINE int8x16_t SignedGroup(const uint8_t* codes, int group, int col) {
  const uint8x16_t w = LoadGroup<kBits>(codes, group, 4 * col).raw;
  return vreinterpretq_s8_u8(CodeBits(kBits) == 8 ? veorq_u8(w, vdupq_n_u8(0x80)) : w);
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+crypto+dotprod")
namespace weir::cpu::HWY_NAMESPACE::dotprod {

// sdot: four signed products added into 32 bits. Codes of 8 bits are made signed by removing their offset, the others
// fit. A row's activations are loaded 16 at a time, four groups, and each sdot picks the lane of its group.
struct Sdot {
  template <int kBits>
  static constexpr int kVecs = 2;
  static constexpr int kVecsOfOne = kVectors;  // one row: what does not depend on a column is done once for a panel
  static constexpr bool kUnpacks = false;

  template <int kBits, int kOffsetLog2, int kRows, int kVecs>
  static HWY_INLINE void Block(const uint8_t* codes, int col, int first, int last, const ActBlock* act,
                               int64_t act_stride, VI (&dot)[kRows][kVecs]) {
    WEIR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const VI start = OffsetSum < CodeBits(kBits) == 8 ? -1 : kOffsetLog2 > (act[r * act_stride], first, last);
      WEIR_UNROLL
      for (int v = 0; v < kVecs; ++v) dot[r][v] = start;
    }
    WEIR_UNROLL
    for (int g = first; g < last; g += 4) {
      int8x16_t a[kRows];
      WEIR_UNROLL
      for (int r = 0; r < kRows; ++r) a[r] = vld1q_s8(act[r * act_stride].q + 4 * g);
      AddGroup<kBits, 0>(codes, g, col, a, dot);
      AddGroup<kBits, 1>(codes, g + 1, col, a, dot);
      AddGroup<kBits, 2>(codes, g + 2, col, a, dot);
      AddGroup<kBits, 3>(codes, g + 3, col, a, dot);
    }
  }

  template <int kBits, int kLane, int kRows, int kVecs>
  static HWY_INLINE void AddGroup(const uint8_t* codes, int group, int col, const int8x16_t (&a)[kRows],
                                  VI (&dot)[kRows][kVecs]) {
    WEIR_UNROLL
    for (int v = 0; v < kVecs; ++v) {
      const int8x16_t w = SignedGroup<kBits>(codes, group, col + v * kLanes);
      WEIR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        dot[r][v] = VI{vdotq_laneq_s32(dot[r][v].raw, w, a[r], kLane)};
        WEIR_IN_ORDER(dot[r][v]);
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
  static constexpr int kVecs = 2;
  static constexpr bool kUnpacks = false;

  template <int kBits, int kOffsetLog2, int kRows, int kVecs>
  static HWY_INLINE void Block(const uint8_t* codes, int col, int first, int last, const ActBlock* act,
                               int64_t act_stride, VI (&dot)[kRows][kVecs]) {
    static_assert(kRows % 2 == 0);
    constexpr int kPairs = kRows / 2;
    VI sum[kPairs][kVecs][2];  // of columns 0, 1 and of 2, 3: those of the pair's first row, then of its second
    WEIR_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      const ActBlock *even = act + 2 * p * act_stride, *odd = even + act_stride;
      const VI e = OffsetSum < CodeBits(kBits) == 8 ? -1 : kOffsetLog2 > (*even, first, last);
      const VI o = OffsetSum < CodeBits(kBits) == 8 ? -1 : kOffsetLog2 > (*odd, first, last);
      WEIR_UNROLL
      for (int v = 0; v < kVecs; ++v) sum[p][v][0] = sum[p][v][1] = VI{Low(e.raw, o.raw)};
    }
    WEIR_UNROLL
    for (int g = first; g < last; g += 4) {
      int32x4_t rows[kPairs][2];  // of groups g, g + 1 and of g + 2, g + 3
      WEIR_UNROLL
      for (int p = 0; p < kPairs; ++p) {
        const ActBlock *even = act + 2 * p * act_stride, *odd = even + act_stride;
        const int32x4_t e = vreinterpretq_s32_s8(vld1q_s8(even->q + 4 * g));
        const int32x4_t o = vreinterpretq_s32_s8(vld1q_s8(odd->q + 4 * g));
        rows[p][0] = Low(e, o);
        rows[p][1] = High(e, o);
      }
      WEIR_UNROLL
      for (int two = 0; two < 2; ++two) {
        WEIR_UNROLL
        for (int v = 0; v < kVecs; ++v) {
          const int32x4_t k0 = vreinterpretq_s32_s8(SignedGroup<kBits>(codes, g + 2 * two, col + v * kLanes));
          const int32x4_t k4 = vreinterpretq_s32_s8(SignedGroup<kBits>(codes, g + 2 * two + 1, col + v * kLanes));
          const int8x16_t columns[2] = {vreinterpretq_s8_s32(vzip1q_s32(k0, k4)),
                                        vreinterpretq_s8_s32(vzip2q_s32(k0, k4))};
          WEIR_UNROLL
          for (int p = 0; p < kPairs; ++p) {
            const int8x16_t q = vreinterpretq_s8_s32(rows[p][two]);
            WEIR_UNROLL
            for (int c = 0; c < 2; ++c) {
              sum[p][v][c] = VI{vmmlaq_s32(sum[p][v][c].raw, q, columns[c])};
              WEIR_IN_ORDER(sum[p][v][c]);
            }
          }
        }
      }
    }
    WEIR_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      WEIR_UNROLL
      for (int v = 0; v < kVecs; ++v) {
        dot[2 * p][v] = VI{Low(sum[p][v][0].raw, sum[p][v][1].raw)};
        dot[2 * p + 1][v] = VI{High(sum[p][v][0].raw, sum[p][v][1].raw)};
      }
    }
  }

  // The low, or the high, halves of both.
  static HWY_INLINE int32x4_t Low(int32x4_t a, int32x4_t b) {
    return vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
  }
  static HWY_INLINE int32x4_t High(int32x4_t a, int32x4_t b) {
    return vreinterpretq_s32_s64(vzip2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
  }
};

#include "backend/cpu/matmul_block_tile-inl.h"

}  // namespace weir::cpu::HWY_NAMESPACE::i8mm
HWY_POP_ATTRIBUTES
