// SPDX-License-Identifier: Apache-2.0
// The tile of products of packed block formats, over any Dots of matmul_blocks-inl.h. Included inside a namespace, once
// per instruction set: a function is compiled for the target in effect where it is defined, not where it is used.

// Prefetch distance in bytes of a one-row pass, where the weights come from memory and nothing hides their latency.
inline constexpr int kBlockPrefetch = 1536;

// kRows rows times kVecs * kLanes columns from vector `vector` of a panel, all of k.
template <PackLayout kLayout, class Dots, int kRows, int kVecs>
HWY_INLINE void BlockTile(const ProductArgs& args, int64_t panel, int64_t row, int vector) {
  constexpr bool kMin = kLayout.has_addend();
  constexpr int kHalves = kLayout.has_two() ? 2 : 1;
  const DF df;
  const int64_t n_blocks = args.w->n_blocks();
  const ActBlock* act = args.act + row * n_blocks;
  const uint8_t* codes = args.w->panel(args.first_panel + panel);
  const uint8_t* scales = codes + n_blocks * kLayout.code_bytes();
  VF sum[kVecs][kRows];
  WEIR_UNROLL
  for (int v = 0; v < kVecs; ++v) {
    WEIR_UNROLL
    for (int r = 0; r < kRows; ++r) sum[v][r] = hn::Zero(df);
  }
  for (int64_t b = 0; b < n_blocks; ++b, ++act, codes += kLayout.code_bytes()) {
    if constexpr (kRows == 1) {
      for (int64_t line = 0; line < kLayout.code_bytes(); line += 64) hwy::Prefetch(codes + line + kBlockPrefetch);
    }
    WEIR_UNROLL
    for (int v = 0; v < kVecs; ++v) {
      const int col = (vector + v) * kLanes;
      VF scale[2], add = hn::Zero(df);
      if constexpr (kLayout.scales == ScaleKind::kHalf) {
        scale[0] = LoadHalfs(scales + b * 32 + 2 * col);
      } else if constexpr (kLayout.scales == ScaleKind::kHalfMin) {
        scale[0] = LoadHalfs(scales + b * 64 + 2 * col);
        add = LoadHalfs(scales + b * 64 + 32 + 2 * col);
      } else if constexpr (kLayout.scales == ScaleKind::kHalves) {
        scale[0] = LoadHalfs(scales + b * 64 + 2 * col);
        scale[1] = LoadHalfs(scales + b * 64 + 32 + 2 * col);
      } else if constexpr (kLayout.scales == ScaleKind::kPower) {
        scale[0] = LoadPowers(scales + b * 16 + col);
      } else {
        const uint8_t* super = scales + b / kSuperBlocks * kLayout.super_bytes();
        const VF d = LoadHalfs(super + 2 * col);
        if constexpr (kLayout.scales == ScaleKind::kSuper) {
          const uint8_t* sub = super + 64 + b % kSuperBlocks * 32 + col;
          scale[0] = hn::Mul(d, LoadBytes<uint8_t>(sub));
          add = hn::Neg(hn::Mul(LoadHalfs(super + 32 + 2 * col), LoadBytes<uint8_t>(sub + 16)));
        } else {
          const uint8_t* sub = super + 32 + b % kSuperBlocks * kLayout.sub_bytes() + col;
          scale[0] = hn::Mul(d, LoadBytes<int8_t>(sub));
          if constexpr (kHalves == 2) scale[1] = hn::Mul(d, LoadBytes<int8_t>(sub + 16));
        }
      }
      WEIR_UNROLL
      for (int half = 0; half < kHalves; ++half) {
        VI dot[kRows];
        Dots::template Block<UnpackedBits(kLayout), kLayout.offset_log2, kRows>(
            codes, col, half * 8 / kHalves, (half + 1) * 8 / kHalves, act, n_blocks, dot);
        WEIR_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const ActBlock& a = act[r * n_blocks];
          sum[v][r] = hn::MulAdd(hn::Mul(hn::ConvertTo(df, dot[r]), scale[half]), hn::Set(df, a.d), sum[v][r]);
          if constexpr (kMin) sum[v][r] = hn::MulAdd(add, hn::Set(df, a.d_sum), sum[v][r]);
        }
      }
    }
  }
  WEIR_UNROLL
  for (int v = 0; v < kVecs; ++v) {
    WEIR_UNROLL
    for (int r = 0; r < kRows; ++r) StoreColumns(args, panel, row + r, vector + v, sum[v][r]);
  }
}

// All rows times all panels: four rows at a time with Dots and as many columns as registers hold; the remaining rows
// with Rest, a whole panel at once, so that its memory is read in order.
template <PackLayout kLayout, class Dots, class Rest>
void BlockPanels(const ProductArgs& args) {
  for (int64_t panel = 0; panel < args.n_panels; ++panel) {
    const int64_t n_fours = args.n_rows / 4 * 4;
    for (int vector = 0; n_fours > 0 && vector < kVectors; ++vector) {
      for (int64_t row = 0; row < n_fours; row += 4) BlockTile<kLayout, Dots, 4, 1>(args, panel, row, vector);
    }
    switch (args.n_rows - n_fours) {
      case 3:
        BlockTile<kLayout, Rest, 3, kVectors>(args, panel, n_fours, 0);
        break;
      case 2:
        BlockTile<kLayout, Rest, 2, kVectors>(args, panel, n_fours, 0);
        break;
      case 1:
        BlockTile<kLayout, Rest, 1, kVectors>(args, panel, n_fours, 0);
        break;
      default:
        break;
    }
  }
}
