// weir-plugin: weights
// SPDX-License-Identifier: Apache-2.0
// MXFP4: the codes of a panel as those of four bits in coded_weights.h, [n_blocks][256 bytes], then the exponents,
// [n_blocks][16 bytes]. A product looks the codes up among the sixteen levels, in registers, and multiplies integers.
#include <cstring>

#include "backend/cpu/coded_weights.h"
#include "backend/cpu/pack.h"
#include "backend/cpu/unroll.h"
#include "quant/block.h"
#include "quant/mxfp4.h"

#define HWY_WANT_AVX3_DL
// Arrays of vectors need vectors of a size known at compile time. SSSE3 without SSE4 is too rare to be worth the
// compile time.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/mxfp4_weights.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// After foreach_target.h: compiled once per target.
#include "backend/cpu/matmul_blocks-inl.h"
#include "backend/cpu/matmul_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kCodeBytes = 256;  // of a block of 32 x 16

// ScaleMXFP4() of kLanes exponents: 2^(e - 128), a subnormal number for the two smallest.
HWY_INLINE VF Scales(const uint8_t* exponents) {
  const DI di;
#if HWY_TARGET == HWY_SCALAR
  const VI e = hn::Set(di, static_cast<int32_t>(*exponents));
#else
  const hn::Rebind<uint8_t, DI> du8;
  const VI e = hn::PromoteTo(di, hn::LoadU(du8, exponents));
#endif
  const VI one = hn::Set(di, 1);
  const VI bits =
      hn::IfThenElse(hn::Gt(e, one), hn::ShiftLeft<23>(hn::Sub(e, one)), hn::ShiftLeft<21>(hn::Add(e, one)));
  return hn::BitCast(DF(), bits);
}

// kRows rows times kVecs * kLanes columns from vector `vector` of a panel, all of k.
template <int kRows, int kVecs>
HWY_INLINE void LevelTile(const ProductArgs& args, int64_t panel, int64_t row, int vector) {
  const DF df;
  const int64_t n_blocks = args.w->n_blocks();
  const ActBlock* act = args.act + row * n_blocks;
  const uint8_t* codes = args.w->panel(args.first_panel + panel);
  const uint8_t* exponents = codes + n_blocks * kCodeBytes;
  VF sum[kVecs][kRows];
  WEIR_UNROLL
  for (int v = 0; v < kVecs; ++v) {
    WEIR_UNROLL
    for (int r = 0; r < kRows; ++r) sum[v][r] = hn::Zero(df);
  }
  for (int64_t b = 0; b < n_blocks; ++b, ++act, codes += kCodeBytes, exponents += kPanel) {
    if constexpr (kRows == 1) {
      for (int64_t line = 0; line < kCodeBytes; line += 64) hwy::Prefetch(codes + line + kBlockPrefetch);
    }
    WEIR_UNROLL
    for (int v = 0; v < kVecs; ++v) {
      const int col = (vector + v) * kLanes;
      const VF scale = Scales(exponents + col);
      VI dot[kRows];
      BestDots::template Block<kLevelBits, kLevelOffsetLog2, kRows>(codes, col, 0, 8, act, n_blocks, dot);
      WEIR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        sum[v][r] = hn::MulAdd(hn::Mul(hn::ConvertTo(df, dot[r]), scale), hn::Set(df, act[r * n_blocks].d), sum[v][r]);
      }
    }
  }
  WEIR_UNROLL
  for (int v = 0; v < kVecs; ++v) {
    WEIR_UNROLL
    for (int r = 0; r < kRows; ++r) StoreColumns(args, panel, row + r, vector + v, sum[v][r]);
  }
}

// As BlockPanels().
void LevelImpl(const ProductArgs& args) {
  for (int64_t panel = 0; panel < args.n_panels; ++panel) {
    const int64_t n_fours = args.n_rows / 4 * 4;
    for (int vector = 0; n_fours > 0 && vector < kVectors; ++vector) {
      for (int64_t row = 0; row < n_fours; row += 4) LevelTile<4, 1>(args, panel, row, vector);
    }
    switch (args.n_rows - n_fours) {
      case 3:
        LevelTile<3, kVectors>(args, panel, n_fours, 0);
        break;
      case 2:
        LevelTile<2, kVectors>(args, panel, n_fours, 0);
        break;
      case 1:
        LevelTile<1, kVectors>(args, panel, n_fours, 0);
        break;
      default:
        break;
    }
  }
}

}  // namespace
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {

HWY_EXPORT(LevelImpl);

namespace {

Suits Suit(DType type) { return type == DType::kMXFP4 ? Suits::kThisType : Suits::kNot; }

int64_t PanelBytes(DType, int64_t n_in) {
  const int64_t n_blocks = n_in / kQ8Block;
  return (n_blocks * (256 + kPanel) + 63) / 64 * 64;
}

void Pack(DType, const uint8_t* row, int64_t n_in, int col, uint8_t* panel) {
  const int64_t n_blocks = n_in / kQ8Block;
  uint8_t* exponents = panel + n_blocks * 256;
  for (int64_t b = 0; b < n_blocks; ++b, panel += 256) {
    const auto block = LoadBlock<BlockMXFP4>(row + b * static_cast<int64_t>(sizeof(BlockMXFP4)));
    // Byte k holds elements k and k + 16, as in a panel.
    for (int group = 0; group < 4; ++group) std::memcpy(panel + group * 64 + 4 * col, block.qs + 4 * group, 4);
    exponents[b * kPanel + col] = block.e;
  }
}

void Decode(DType, const uint8_t* panel, int64_t n_in, int col, float* out) {
  const int64_t n_blocks = n_in / kQ8Block;
  const uint8_t* exponents = panel + n_blocks * 256;
  for (int64_t b = 0; b < n_blocks; ++b, panel += 256, out += kQ8Block) {
    BlockMXFP4 block;
    block.e = exponents[b * kPanel + col];
    for (int group = 0; group < 4; ++group) std::memcpy(block.qs + 4 * group, panel + group * 64 + 4 * col, 4);
    DecodeMXFP4(block, out);
  }
}

void Product(const ProductArgs& args) { HWY_DYNAMIC_DISPATCH(LevelImpl)(args); }

}  // namespace

extern const WeightsInfo kMxfp4Weights;
const WeightsInfo kMxfp4Weights = {
    .suits = Suit,
    .panel_bytes = PanelBytes,
    .pack = Pack,
    .decode = Decode,
    .product = Product,
};

}  // namespace weir::cpu
#endif
