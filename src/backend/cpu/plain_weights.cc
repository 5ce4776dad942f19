// weir-plugin: weights
// SPDX-License-Identifier: Apache-2.0
// F32, F16 and BF16: a panel is [n_in][16] elements in their storage type, multiplied with F32 activations or, those of
// 16 bits, with rounded ones.
#include <algorithm>
#include <cstring>

#include "backend/cpu/pack.h"
#include "backend/cpu/unroll.h"
#include "quant/format.h"

#define HWY_WANT_AVX3_DL
// Arrays of vectors need vectors of a size known at compile time. SSSE3 without SSE4 is too rare to be worth the
// compile time.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/plain_weights.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// After foreach_target.h: compiled once per target.
#include "backend/cpu/matmul_halfs-inl.h"
#include "backend/cpu/matmul_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The first rows of several fetch the panels' weights ahead, into the second cache, across the ends of panels; later
// rows find them there. A single row reads more panels at once instead.
constexpr int64_t kFetchAhead = 2048;

template <DType kType, int kRows, int kPanels>
HWY_INLINE void PlainTile(const ProductArgs& args, int64_t panel, int64_t row) {
  constexpr int kBytes = kType == DType::kF32 ? 4 : 2;
  const int64_t panel_bytes = args.w->panel_bytes();
  const DF df;
  const float* x = args.x + row * args.x_stride;
  const uint8_t* w[kPanels];
  WEIR_UNROLL
  for (int p = 0; p < kPanels; ++p) w[p] = args.w->panel(args.first_panel + panel + p);
  VF sum[kRows][kPanels * kVectors];
  WEIR_UNROLL
  for (int r = 0; r < kRows; ++r) {
    WEIR_UNROLL
    for (int i = 0; i < kPanels * kVectors; ++i) sum[r][i] = hn::Zero(df);
  }
  for (int64_t k = 0; k < args.w->n_in(); ++k) {
    if (kRows > 1 && row == 0) {
      const int64_t at = k * kPanel * kBytes + kFetchAhead, skip = at < panel_bytes ? 0 : (kPanels - 1) * panel_bytes;
      WEIR_UNROLL
      for (int p = 0; p < kPanels; ++p) __builtin_prefetch(w[p] + at + skip, 0, 2);
    }
    WEIR_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      VF weights[kVectors];
      WEIR_UNROLL
      for (int v = 0; v < kVectors; ++v) weights[v] = LoadPlain<kType>(w[p] + (k * kPanel + v * kLanes) * kBytes);
      // One activation at a time: six of them beside twelve sums are more than AVX2's registers.
      WEIR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const VF activation = hn::Set(df, x[r * args.x_stride + k]);
        WEIR_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          VF& s = sum[r][p * kVectors + v];
          s = hn::MulAdd(activation, weights[v], s);
        }
      }
    }
  }
  WEIR_UNROLL
  for (int r = 0; r < kRows; ++r) {
    WEIR_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      WEIR_UNROLL
      for (int v = 0; v < kVectors; ++v) StoreColumns(args, panel + p, row + r, v, sum[r][p * kVectors + v]);
    }
  }
}

constexpr int kMostRows = kLanes >= 8 ? 6 : 3;  // of a tile: its sums fit in the registers
// Panels of a tile of so many rows: enough sums to keep the multipliers busy.
constexpr int PanelsFor(int n_rows) { return std::max(1, (n_rows == 1 ? 8 : 12) / (n_rows * kVectors)); }

// The last rows, fewer than kMostRows.
template <DType kType, int kRows, int kPanels>
HWY_INLINE void LastRows(const ProductArgs& args, int64_t panel, int64_t row) {
  if constexpr (kRows > 0) {
    if (args.n_rows - row == kRows) return PlainTile<kType, kRows, kPanels>(args, panel, row);
    LastRows<kType, kRows - 1, kPanels>(args, panel, row);
  }
}

template <DType kType, int kPanels>
void ManyRows(const ProductArgs& args, int64_t& panel) {
  for (; panel + kPanels <= args.n_panels; panel += kPanels) {
    int64_t row = 0;
    for (; row + kMostRows <= args.n_rows; row += kMostRows) PlainTile<kType, kMostRows, kPanels>(args, panel, row);
    LastRows<kType, kMostRows - 1, kPanels>(args, panel, row);
  }
}

// Fewer than kMostRows in all.
template <DType kType, int kRows>
void FewRows(const ProductArgs& args, int64_t& panel) {
  if constexpr (kRows > 0) {
    if (args.n_rows < kRows) return FewRows<kType, kRows - 1>(args, panel);
    constexpr int kPanels = PanelsFor(kRows);
    for (; panel + kPanels <= args.n_panels; panel += kPanels) PlainTile<kType, kRows, kPanels>(args, panel, 0);
  }
}

template <DType kType>
void Plain(const ProductArgs& args) {
  int64_t panel = 0;
  if (args.n_rows < kMostRows) FewRows<kType, kMostRows - 1>(args, panel);
  ManyRows<kType, PanelsFor(kMostRows)>(args, panel);
  ManyRows<kType, 1>(args, panel);
}

void PlainImpl(const ProductArgs& args) {
  const DType type = args.w->type();
  if (type == DType::kF32) return Plain<DType::kF32>(args);
  if (args.halfs != nullptr) {
    return type == DType::kF16 ? HalfsProduct<DType::kF16>(args) : HalfsProduct<DType::kBF16>(args);
  }
  if (type == DType::kF16) return Plain<DType::kF16>(args);
  Plain<DType::kBF16>(args);
}

bool HalfsPayImpl() { return kHasHalfs; }

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {

HWY_EXPORT(PlainImpl);
HWY_EXPORT(HalfsPayImpl);

bool HalfsPay() { return HWY_DYNAMIC_DISPATCH(HalfsPayImpl)(); }

namespace {

Suits Suit(DType type) { return IsBlocked(type) || type == DType::kI32 ? Suits::kNot : Suits::kFamily; }

int64_t PanelBytes(DType type, int64_t n_in) { return n_in * kPanel * InfoOf(type).block_bytes; }

void Pack(DType type, const uint8_t* row, int64_t n_in, int col, uint8_t* panel) {
  const int64_t size = InfoOf(type).block_bytes;
  for (int64_t k = 0; k < n_in; ++k) std::memcpy(panel + (k * kPanel + col) * size, row + k * size, size);
}

void Decode(DType type, const uint8_t* panel, int64_t n_in, int col, float* out) {
  const int64_t size = InfoOf(type).block_bytes;
  for (int64_t k = 0; k < n_in; ++k) DecodeRow(type, panel + (k * kPanel + col) * size, 1, out + k);
}

void Product(const ProductArgs& args) { HWY_DYNAMIC_DISPATCH(PlainImpl)(args); }

}  // namespace

extern const WeightsInfo kPlainWeights;
const WeightsInfo kPlainWeights = {
    .suits = Suit,
    .panel_bytes = PanelBytes,
    .pack = Pack,
    .decode = Decode,
    .product = Product,
};

}  // namespace weir::cpu
#endif
