#include "backend/cpu/matmul_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/simd.h"
#include "backend/cpu/unroll.h"

#define HWY_WANT_AVX3_DL
// Arrays of vectors need vectors of a size known at compile time. SSSE3 without SSE4 is on no machine worth its minutes
// of compiling.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/matmul_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// After foreach_target.h: compiled once per target.
#include "backend/cpu/matmul_blocks-inl.h"
#include "backend/cpu/matmul_tile-inl.h"
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
#include "backend/cpu/matmul_vnni-inl.h"
#elif HWY_ARCH_ARM_A64
#include "backend/cpu/matmul_arm-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- plain types

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
  constexpr int kRows = kLanes >= 8 ? 6 : 3;  // sums that fit the registers
  constexpr int kPanels = kLanes >= 16 ? 2 : 1;
  int64_t panel = 0;
  if (args.n_rows < kRows) PlainPanels<kType, 1, kLanes >= 16 ? 8 : kLanes >= 8 ? 4 : 2>(args, panel);
  PlainPanels<kType, kRows, kPanels>(args, panel);
  PlainPanels<kType, kRows, 1>(args, panel);
}

// ---- block formats

template <DType kType>
void Blocks(const ProductArgs& args) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
  vnni::Quantised<kType>(args);
#else
#if HWY_ARCH_ARM_A64
  if (arm_dots() == ArmDots::kI8mm) return i8mm::BlockPanels<kType, i8mm::Smmla, dotprod::Sdot>(args);
  if (arm_dots() == ArmDots::kDotProduct) return dotprod::BlockPanels<kType, dotprod::Sdot, dotprod::Sdot>(args);
#endif
  BlockPanels<kType, BestDots, BestDots>(args);
#endif
}

void ProductImpl(const ProductArgs& args) {
  switch (args.w->type()) {
    case DType::kF32:
      return Plain<DType::kF32>(args);
    case DType::kF16:
      return Plain<DType::kF16>(args);
    case DType::kBF16:
      return Plain<DType::kBF16>(args);
    case DType::kQ8_0:
      return Blocks<DType::kQ8_0>(args);
    case DType::kQ4_0:
      return Blocks<DType::kQ4_0>(args);
    case DType::kQ4_1:
      return Blocks<DType::kQ4_1>(args);
    case DType::kQ5_0:
      return Blocks<DType::kQ5_0>(args);
    case DType::kQ5_1:
      return Blocks<DType::kQ5_1>(args);
    case DType::kQ4_K:
      return Blocks<DType::kQ4_K>(args);
    case DType::kQ5_K:
      return Blocks<DType::kQ5_K>(args);
    case DType::kQ6_K:
      return Blocks<DType::kQ6_K>(args);
    case DType::kI32:
      return;  // never packed
  }
}

// The same numbers as QuantizeRowQ8: one division a block, one rounding a value.
void RoundImpl(const float* x, int64_t n_blocks, ActBlock* out) {
  const DF df;
  const DI di;
  const hn::Rebind<int8_t, DF> di8;
  for (int64_t b = 0; b < n_blocks; ++b, x += kQ8Block) {
    ActBlock& block = out[b];
    VF largest = hn::Zero(df), poison = hn::Zero(df);  // poison: NaN once a value is not finite
    for (int i = 0; i < kQ8Block; i += kLanes) {
      const VF v = hn::LoadU(df, x + i);
      largest = hn::Max(largest, hn::Abs(v));
      poison = hn::Add(poison, hn::Sub(v, v));
    }
    const bool finite = hn::GetLane(hn::SumOfLanes(df, poison)) == 0.0f;
    const float max = hn::GetLane(hn::MaxOfLanes(df, largest));
    if (!finite || max < kQ8Smallest) {
      block = ActBlock{};
      if (!finite) block.d = block.d_sum = std::numeric_limits<float>::quiet_NaN();
      continue;
    }
    block.d = max / 127.0f;
    const VF inverse = hn::Set(df, 127.0f / max);
    VI sums[2] = {hn::Zero(di), hn::Zero(di)};  // of the first and the last 16
    for (int i = 0; i < kQ8Block; i += kLanes) {
      const VI q = hn::NearestInt(hn::Mul(hn::LoadU(df, x + i), inverse));
      hn::StoreU(hn::DemoteTo(di8, q), di8, block.q + i);
      VI& sum = sums[i / 16];
      sum = hn::Add(sum, q);
    }
    const int32_t lo = hn::GetLane(hn::SumOfLanes(di, sums[0])), hi = hn::GetLane(hn::SumOfLanes(di, sums[1]));
    block.neg_sum = -(lo + hi);
    block.neg_sum_lo = -lo;
    block.d_sum = block.d * static_cast<float>(lo + hi);
  }
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {

HWY_EXPORT(ProductImpl);
HWY_EXPORT(RoundImpl);

void Product(const ProductArgs& args) { HWY_DYNAMIC_DISPATCH(ProductImpl)(args); }
void RoundActivations(const float* x, int64_t n_blocks, ActBlock* out) {
  HWY_DYNAMIC_DISPATCH(RoundImpl)(x, n_blocks, out);
}

}  // namespace weir::cpu
#endif
