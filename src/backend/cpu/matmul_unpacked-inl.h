// SPDX-License-Identifier: Apache-2.0
// Products of packed block formats with many rows, over BytePairs of matmul_blocks-inl.h: codes and scales are unpacked
// once for all rows of a call, some blocks of a panel at a time, into the first-level cache. What a format costs beside
// its products is then shared by all rows. Included by coded_product.cc, once per target with BytePairs.

#include <algorithm>

#include "backend/cpu/coded_weights.h"
#include "backend/cpu/matmul.h"
#include "backend/cpu/matmul_blocks-inl.h"
#include "backend/cpu/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

inline constexpr int kUnpackedBlocks = 32;  // at a time: 16 KiB of codes with vectors of 32 bytes

// kUnpackedBlocks blocks of kVecs vectors of columns.
template <PackLayout kLayout, int kVecs>
struct Unpacked {
  static constexpr int kCodeBits = CodeBits(UnpackedBits(kLayout));
  static constexpr int kHalves = kLayout.has_two() ? 2 : 1;
  static constexpr int kPlanes = kCodeBits == 8 ? 2 : 1;  // 8 bits: numbers with their signs, and their magnitudes

  alignas(64) uint8_t codes[kUnpackedBlocks][8][kVecs][kPlanes][4 * kLanes];
  alignas(64) float scale[kUnpackedBlocks][kHalves][kVecs][kLanes];
  alignas(64) float add[kLayout.has_addend() ? kUnpackedBlocks : 1][kVecs][kLanes];

  // Blocks first_block to first_block + n - 1 of a panel, columns from `col` on.
  HWY_INLINE void Fill(const uint8_t* panel, int64_t n_blocks, int64_t first_block, int n, int col) {
    const DU8 du8;
    const DF df;
    const uint8_t* scales = panel + n_blocks * kLayout.code_bytes();
    for (int b = 0; b < n; ++b) {
      const BytePairs::Packed<UnpackedBits(kLayout)> packed = {panel + (first_block + b) * kLayout.code_bytes(), col};
      WEIR_UNROLL
      for (int g = 0; g < 8; ++g) {
        WEIR_UNROLL
        for (int v = 0; v < kVecs; ++v) {
          const hn::Vec<DU8> w = packed.Codes(g, v);
          hn::Store(w, du8, codes[b][g][v][0]);
          if constexpr (kPlanes == 2) hn::Store(packed.Magnitude(g, v, w), du8, codes[b][g][v][1]);
        }
      }
      for (int half = 0; half < kHalves; ++half) {
        for (int v = 0; v < kVecs; ++v) {
          VF of_block, addend;
          LoadScale<kLayout>(scales, first_block + b, col + v * kLanes, half, of_block, addend);
          hn::Store(of_block, df, scale[b][half][v]);
          if constexpr (kLayout.has_addend()) hn::Store(addend, df, add[b][v]);
        }
      }
    }
  }

  // A block of it, as a Source of BytePairs.
  struct Block {
    const uint8_t (*codes)[kVecs][kPlanes][4 * kLanes];

    HWY_INLINE hn::Vec<DU8> Codes(int group, int v) const { return hn::Load(DU8(), codes[group][v][0]); }
    HWY_INLINE hn::Vec<DU8> Magnitude(int group, int v, hn::Vec<DU8>) const {
      return hn::Load(DU8(), codes[group][v][kPlanes - 1]);
    }
  };
};

// What the first rows of some blocks fetch meanwhile: as many of the blocks that follow, and their scales.
struct NextBlocks {
  const uint8_t *codes = nullptr, *scales = nullptr;  // nullptr: nothing
};

// kRows rows of sums, of which the first block of a panel starts new ones, and n more blocks.
template <PackLayout kLayout, int kRows, int kVecs>
HWY_INLINE void UnpackedTile(const Unpacked<kLayout, kVecs>& w, int n, const ActBlock* act, int64_t act_stride,
                             bool starts, NextBlocks next, float (*sums)[kVecs * kLanes]) {
  using Blocks = Unpacked<kLayout, kVecs>;
  const DF df;
  VF sum[kRows][kVecs];
  WEIR_UNROLL
  for (int r = 0; r < kRows; ++r) {
    WEIR_UNROLL
    for (int v = 0; v < kVecs; ++v) sum[r][v] = starts ? hn::Zero(df) : hn::Load(df, sums[r] + v * kLanes);
  }
  for (int b = 0; b < n; ++b, ++act) {
    if (next.codes != nullptr) {
      constexpr int64_t kScaleBytes = kLayout.scale_bytes(kSuperBlocks) / kSuperBlocks;  // a block's, on average
      for (int64_t line = 0; line < kLayout.code_bytes(); line += 64) __builtin_prefetch(next.codes + line, 0, 2);
      if constexpr (kLayout.bits < 8) {  // codes of 8 bits are as much as can be fetched meanwhile
        for (int64_t byte = 0; byte < kScaleBytes; byte += 64) __builtin_prefetch(next.scales + byte, 0, 2);
      }
      next.codes += kLayout.code_bytes();
      next.scales += kScaleBytes;
    }
    WEIR_UNROLL
    for (int half = 0; half < Blocks::kHalves; ++half) {
      VI dot[kRows][kVecs];
      BytePairs::Sum<Blocks::kCodeBits, kLayout.offset_log2>(typename Blocks::Block{w.codes[b]},
                                                             half * 8 / Blocks::kHalves,
                                                             (half + 1) * 8 / Blocks::kHalves, act, act_stride, dot);
      WEIR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const ActBlock& a = act[r * act_stride];
        WEIR_UNROLL
        for (int v = 0; v < kVecs; ++v) {
          VF& s = sum[r][v];
          const VF scaled = hn::Mul(hn::ConvertTo(df, dot[r][v]), hn::Load(df, w.scale[b][half][v]));
          s = hn::MulAdd(scaled, hn::Set(df, a.d), s);
          if constexpr (kLayout.has_addend()) s = hn::MulAdd(hn::Load(df, w.add[b][v]), hn::Set(df, a.d_sum), s);
        }
      }
    }
  }
  WEIR_UNROLL
  for (int r = 0; r < kRows; ++r) {
    WEIR_UNROLL
    for (int v = 0; v < kVecs; ++v) hn::Store(sum[r][v], df, sums[r] + v * kLanes);
  }
}

// Rows `row` to row + n_rows - 1, at most kTaskRows, times kVecs vectors of a panel from `vector` on.
template <PackLayout kLayout, int kVecs>
void UnpackedRows(const ProductArgs& args, int64_t panel, int64_t row, int64_t n_rows, int vector) {
  const int64_t n_blocks = args.w->n_blocks();
  const uint8_t* packed = args.w->panel(args.first_panel + panel);
  Unpacked<kLayout, kVecs> w;
  alignas(64) float sums[kTaskRows][kVecs * kLanes];
  for (int64_t first = 0; first < n_blocks; first += kUnpackedBlocks) {
    const int n = static_cast<int>(std::min<int64_t>(kUnpackedBlocks, n_blocks - first));
    w.Fill(packed, n_blocks, first, n, vector * kLanes);
    // The next blocks, or those of the panel that follows, are fetched while the first rows are multiplied.
    const bool ends = first + n == n_blocks;
    const int64_t after = ends ? 0 : first + n;
    NextBlocks next;
    if (row == 0 && vector == 0) {
      const uint8_t* const of = packed + (ends ? args.w->panel_bytes() : 0);
      next.codes = of + after * kLayout.code_bytes();
      next.scales = of + n_blocks * kLayout.code_bytes() + kLayout.scale_bytes(after);
    }
    for (int64_t r = 0; r < n_rows; r += 4) {
      UnpackedTile<kLayout, 4, kVecs>(w, n, args.act + (row + r) * n_blocks + first, n_blocks, first == 0,
                                      r == 0 ? next : NextBlocks(), sums + r);
    }
  }
  for (int64_t r = 0; r < n_rows; ++r) {
    for (int v = 0; v < kVecs; ++v) {
      StoreColumns(args, panel, row + r, vector + v, hn::Load(DF(), sums[r] + v * kLanes));
    }
  }
}

template <PackLayout kLayout>
void BytePairs::Panels(const ProductArgs& args, int64_t n_rows) {
  constexpr int kAtOnce = kVecs<UnpackedBits(kLayout)>;
  for (int64_t panel = 0; panel < args.n_panels; ++panel) {
    for (int64_t row = 0; row < n_rows; row += kTaskRows) {
      for (int vector = 0; vector < kVectors; vector += kAtOnce) {
        UnpackedRows<kLayout, kAtOnce>(args, panel, row, std::min(kTaskRows, n_rows - row), vector);
      }
    }
  }
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
