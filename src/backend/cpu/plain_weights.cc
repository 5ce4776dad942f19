// weir-plugin: weights
// SPDX-License-Identifier: Apache-2.0
// F32, F16 and BF16: a panel is [n_in][16] elements in their storage type, multiplied with F32 activations.
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
#include "backend/cpu/matmul_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <DType kType, int kRows, int kPanels>
HWY_INLINE void PlainTile(const ProductArgs& args, int64_t panel, int64_t row) {
  constexpr int kBytes = kType == DType::kF32 ? 4 : 2;
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
    WEIR_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      WEIR_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const VF weights = LoadPlain<kType>(w[p] + (k * kPanel + v * kLanes) * kBytes);
        WEIR_UNROLL
        for (int r = 0; r < kRows; ++r) {
          VF& s = sum[r][p * kVectors + v];
          s = hn::MulAdd(hn::Set(df, x[r * args.x_stride + k]), weights, s);
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

template <DType kType, int kRows, int kPanels>
void PlainPanels(const ProductArgs& args, int64_t& panel) {
  for (; panel + kPanels <= args.n_panels; panel += kPanels) {
    int64_t row = 0;
    for (; row + kRows <= args.n_rows; row += kRows) PlainTile<kType, kRows, kPanels>(args, panel, row);
    for (; row < args.n_rows; ++row) PlainTile<kType, 1, kPanels>(args, panel, row);
  }
}

template <DType kType>
void Plain(const ProductArgs& args) {
  constexpr int kRows = kLanes >= 8 ? 6 : 3;  // sums that fit in the registers
  constexpr int kPanels = kLanes >= 16 ? 2 : 1;
  int64_t panel = 0;
  if (args.n_rows < kRows) PlainPanels<kType, 1, kLanes >= 16 ? 8 : kLanes >= 8 ? 4 : 2>(args, panel);
  PlainPanels<kType, kRows, kPanels>(args, panel);
  PlainPanels<kType, kRows, 1>(args, panel);
}

void PlainImpl(const ProductArgs& args) {
  if (args.w->type() == DType::kF32) return Plain<DType::kF32>(args);
  if (args.w->type() == DType::kF16) return Plain<DType::kF16>(args);
  Plain<DType::kBF16>(args);
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {

HWY_EXPORT(PlainImpl);

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
