// SPDX-License-Identifier: Apache-2.0
// The tile of products of packed block formats, over any Dots of matmul_blocks-inl.h. Included inside a namespace, once
// per instruction set: a function is compiled for the target in effect where it is defined, not where it is used.

// Panels that passes of a few rows read side by side.
inline constexpr int kStreams = 4;
// The fewest rows for which weights are unpacked once for all (Dots::kUnpacks). Codes stored as bytes need two
// instructions for it, others up to six, and twice the room in the first cache: eight rows do better without.
constexpr int64_t UnpackedRows(int stored_bits) { return stored_bits == 8 ? 16 : 8; }

// Vectors whose sums BlockTile() forms beside each other.
template <class Dots, int kBits, int kRows>
constexpr int VecsAtOnce() {
  if constexpr (kRows == 1 && requires { Dots::kVecsOfOne; }) {
    return Dots::kVecsOfOne;
  } else {
    return Dots::template kVecs<kBits>;
  }
}

// Scale and addend of kLanes columns from `col` on, for the first or the second half of block b if halves differ.
template <PackLayout kLayout>
HWY_INLINE void LoadScale(const uint8_t* scales, int64_t b, int col, int half, VF& scale, VF& add) {
  if constexpr (kLayout.scales == ScaleKind::kHalf) {
    scale = LoadHalfs(scales + b * 32 + 2 * col);
  } else if constexpr (kLayout.scales == ScaleKind::kHalfMin) {
    scale = LoadHalfs(scales + b * 64 + 2 * col);
    add = LoadHalfs(scales + b * 64 + 32 + 2 * col);
  } else if constexpr (kLayout.scales == ScaleKind::kHalves) {
    scale = LoadHalfs(scales + b * 64 + 32 * half + 2 * col);
  } else if constexpr (kLayout.scales == ScaleKind::kPower) {
    scale = LoadPowers(scales + b * 16 + col);
  } else {
    const uint8_t* super = scales + b / kSuperBlocks * kLayout.super_bytes();
    const VF d = LoadHalfs(super + 2 * col);
    if constexpr (kLayout.scales == ScaleKind::kSuper) {
      const uint8_t* sub = super + 64 + b % kSuperBlocks * 32 + col;
      scale = hn::Mul(d, LoadBytes<uint8_t>(sub));
      add = hn::Neg(hn::Mul(LoadHalfs(super + 32 + 2 * col), LoadBytes<uint8_t>(sub + 16)));
    } else {
      const uint8_t* sub = super + 32 + b % kSuperBlocks * kLayout.sub_bytes() + col;
      scale = hn::Mul(d, LoadBytes<int8_t>(sub + 16 * half));
    }
  }
}

// Sums of vector `vector` of a panel, or of the next ones, which are those of v.
template <int kRows, int kVecs>
HWY_INLINE void StoreSums(const ProductArgs& args, int64_t panel, int64_t row, int vector, VF (&sum)[kRows][kVecs],
                          int v) {
  WEIR_UNROLL
  for (int r = 0; r < kRows; ++r) {
    StoreColumns(args, panel + vector / kVectors, row + r, vector % kVectors, sum[r][v]);
  }
}

// kRows rows times n_vecs * kLanes columns from vector `vector` of a panel on, all of k. Columns past the panel are
// those of the next ones. REQUIRES: n_vecs <= kVecs, and a multiple of what Dots takes at once.
template <PackLayout kLayout, class Dots, int kRows, int kVecs>
HWY_INLINE void BlockTile(const ProductArgs& args, int64_t panel, int64_t row, int vector, int n_vecs = kVecs) {
  constexpr int kHalves = kLayout.has_two() ? 2 : 1;
  constexpr int kBits = UnpackedBits(kLayout);
  constexpr int kAtOnce = std::min(kVecs, VecsAtOnce<Dots, kBits, kRows>());
  const DF df;
  const int64_t n_blocks = args.w->n_blocks();
  const ActBlock* act = args.act + row * n_blocks;
  const int64_t panel_bytes = args.w->panel_bytes();
  const uint8_t* panel_codes = args.w->panel(args.first_panel + panel);
  VF sum[kRows][kVecs];
  WEIR_UNROLL
  for (int r = 0; r < kRows; ++r) {
    WEIR_UNROLL
    for (int v = 0; v < kVecs; ++v) sum[r][v] = hn::Zero(df);
  }
  const PanelPrefetch<kLayout> prefetch(n_blocks, panel_bytes, std::max(1, kVecs / kVectors));
  for (int64_t b = 0; b < n_blocks; ++b, ++act, panel_codes += kLayout.code_bytes()) {
    // Not unrolled: several panels would grow the code as many times, for sums that may as well be in memory.
    for (int first = 0; first < n_vecs; first += kAtOnce) {
      const uint8_t* codes = panel_codes + (vector + first) / kVectors * panel_bytes;
      const uint8_t* scales = codes + (n_blocks - b) * kLayout.code_bytes();
      const int col = (vector + first) % kVectors * kLanes;
      if (row == 0 && col == 0) {  // later rows find them in a cache
        if (kRows >= 4 && (kLayout.bits > 5 || args.n_rows > 4)) {
          prefetch.FetchNext(codes, scales, b);
        } else {
          prefetch.Fetch(codes, scales, b);
        }
      }
      WEIR_UNROLL
      for (int half = 0; half < kHalves; ++half) {
        VI dot[kRows][kAtOnce];
        Dots::template Block<kBits, kLayout.offset_log2, kRows, kAtOnce>(codes, col, half * 8 / kHalves,
                                                                         (half + 1) * 8 / kHalves, act, n_blocks, dot);
        // Scales are loaded last: until here, sums have the registers.
        VF scale[kAtOnce], add[kAtOnce];
        WEIR_UNROLL
        for (int v = 0; v < kAtOnce; ++v) LoadScale<kLayout>(scales, b, col + v * kLanes, half, scale[v], add[v]);
        WEIR_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const ActBlock& a = act[r * n_blocks];
          WEIR_UNROLL
          for (int v = 0; v < kAtOnce; ++v) {
            VF& s = sum[r][first + v];
            s = hn::MulAdd(hn::Mul(hn::ConvertTo(df, dot[r][v]), scale[v]), hn::Set(df, a.d), s);
            if constexpr (kLayout.has_addend()) s = hn::MulAdd(add[v], hn::Set(df, a.d_sum), s);
          }
        }
      }
    }
  }
#if HWY_ARCH_ARM_A64
  if constexpr (kVecs == kAtOnce) {  // an index that is not constant would keep the sums in memory
    WEIR_UNROLL
    for (int v = 0; v < kVecs; ++v) StoreSums(args, panel, row, vector + v, sum, v);
    return;
  }
#endif
  for (int v = 0; v < n_vecs; ++v) StoreSums(args, panel, row, vector + v, sum, v);
}

// All panels times the last rows of a call, fewer than four.
template <PackLayout kLayout, class Dots, int kRows>
void LastRows(const ProductArgs& args, int64_t row) {
  for (int64_t panel = 0; panel < args.n_panels; panel += kStreams) {
    const int n_panels = static_cast<int>(std::min<int64_t>(kStreams, args.n_panels - panel));
    BlockTile<kLayout, Dots, kRows, kStreams * kVectors>(args, panel, row, 0, n_panels * kVectors);
  }
}

// All rows times all panels: four rows at a time with Dots and as many columns as registers hold, the remaining ones
// with Rest.
template <PackLayout kLayout, class Dots, class Rest>
void BlockPanels(const ProductArgs& args) {
  constexpr int kVecs = Dots::template kVecs<UnpackedBits(kLayout)>;
  const int64_t n_fours = args.n_rows / 4 * 4;
  int64_t row = 0;
  if constexpr (Dots::kUnpacks) {
    if (n_fours >= UnpackedRows(kLayout.bits)) Dots::template Panels<kLayout>(args, row = n_fours);
  }
  for (int64_t panel = 0; row < n_fours && panel < args.n_panels; ++panel) {
    for (int vector = 0; vector < kVectors; vector += kVecs) {
      for (int64_t r = row; r < n_fours; r += 4) BlockTile<kLayout, Dots, 4, kVecs>(args, panel, r, vector);
    }
  }
  switch (args.n_rows - n_fours) {
    case 3:
      return LastRows<kLayout, Rest, 3>(args, n_fours);
    case 2:
      return LastRows<kLayout, Rest, 2>(args, n_fours);
    case 1:
      return LastRows<kLayout, Rest, 1>(args, n_fours);
    default:
      return;
  }
}
