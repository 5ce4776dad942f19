#include "backend/cpu/matmul_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/unroll.h"

#define HWY_WANT_AVX3_DL
// Arrays of vectors need vectors of a size known at compile time.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/matmul_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
#include "backend/cpu/matmul_vnni-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, kPanel>;
using VF = hn::Vec<DF>;
using DI = hn::RebindToSigned<DF>;
using VI = hn::Vec<DI>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF()));
constexpr int kVectors = kPanel / kLanes;  // vectors of a panel

// Adds bias and previous content in a fixed order and writes the columns that exist.
HWY_INLINE void StoreColumns(const ProductArgs& args, int64_t panel, int64_t row, int vector, VF value) {
  const DF df;
  const int64_t first = panel * kPanel + vector * kLanes;
  const int64_t n_cols = args.w->n_out() - args.first_panel * kPanel - first;
  float* y = args.y + row * args.y_stride + first;
  if (n_cols >= kLanes) {
    if (args.bias != nullptr) value = hn::Add(value, hn::LoadU(df, args.bias + first));
    if (args.accumulate) value = hn::Add(value, hn::LoadU(df, y));
    hn::StoreU(value, df, y);
    return;
  }
  HWY_ALIGN float lanes[kLanes];
  hn::Store(value, df, lanes);
  for (int64_t c = 0; c < n_cols; ++c) {
    if (args.bias != nullptr) lanes[c] += args.bias[first + c];
    y[c] = args.accumulate ? lanes[c] + y[c] : lanes[c];
  }
}

// ---- plain types

template <DType kType>
HWY_INLINE VF LoadPlain(const uint8_t* from) {
  const DF df;
  if constexpr (kType == DType::kF32) {
    return hn::LoadU(df, reinterpret_cast<const float*>(from));
  } else if constexpr (kType == DType::kF16) {
    const hn::Rebind<hwy::float16_t, DF> dh;
    return hn::PromoteTo(df, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from)));
  } else {
    const hn::Rebind<hwy::bfloat16_t, DF> db;
    return hn::PromoteTo(df, hn::LoadU(db, reinterpret_cast<const hwy::bfloat16_t*>(from)));
  }
}

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

// ---- block formats, without dot-product instructions

#if HWY_TARGET != HWY_SCALAR
using DI16 = hn::Repartition<int16_t, DI>;
using VI16 = hn::Vec<DI16>;
using DU8 = hn::Repartition<uint8_t, DI>;

HWY_INLINE VF LoadHalfs(const uint8_t* from) { return LoadPlain<DType::kF16>(from); }

template <typename T>
HWY_INLINE VF LoadBytes(const uint8_t* from) {
  const hn::Rebind<T, DF> d;
  return hn::ConvertTo(DF(), hn::PromoteTo(DI(), hn::LoadU(d, reinterpret_cast<const T*>(from))));
}

// 4 * kLanes codes of a group of 4 along k, from byte `at` of the group's 64. 8-bit codes come back signed.
template <int kBits>
HWY_INLINE hn::Vec<DU8> LoadGroup(const uint8_t* block, int group, int at) {
  const DU8 du8;
  if constexpr (kBits == 8) {
    return hn::Xor(hn::LoadU(du8, block + 64 * group + at), hn::Set(du8, 0x80));
  } else {
    const hn::Repartition<uint16_t, DU8> du16;
    const auto raw = hn::LoadU(du8, block + 64 * (group % 4) + at);
    const auto shifted = group < 4 ? raw : hn::BitCast(du8, hn::ShiftRight<4>(hn::BitCast(du16, raw)));
    auto codes = hn::And(shifted, hn::Set(du8, 15));
    if constexpr (kBits == 5) {
      // Lane i needs bit i of the group's word: spread bytes over their eight lanes, then test one bit a lane.
      HWY_ALIGN uint8_t lanes[4 * kLanes];
      for (int i = 0; i < 4 * kLanes; i += 8) {
        const uint64_t byte = block[256 + group * 8 + (at + i) / 8];
        const uint64_t spread = byte * 0x0101010101010101u & 0x8040201008040201u;
        // A byte that is not zero becomes 16: adding 127 carries into its top bit, which then moves down.
        const uint64_t fifth =
            (((spread & 0x7f7f7f7f7f7f7f7fu) + 0x7f7f7f7f7f7f7f7fu) | spread) >> 3 & 0x1010101010101010u;
        std::memcpy(lanes + i, &fifth, 8);
      }
      codes = hn::Or(codes, hn::Load(du8, lanes));
    }
    if constexpr (kBits == 6) {
      const auto wide = hn::BitCast(du16, hn::LoadU(du8, block + 256 + 64 * (group / 4) + at));
      const int j = group % 4;
      const auto moved = j < 2 ? hn::ShiftLeftSame(wide, 4 - 2 * j) : hn::ShiftRightSame(wide, 2 * j - 4);
      codes = hn::Or(codes, hn::And(hn::BitCast(du8, moved), hn::Set(du8, 0x30)));
    }
    return codes;
  }
}

// Adds the two 16-bit halves of every 32-bit lane.
HWY_INLINE VI AddHalves(VI sum, VI16 pairs) {
  const VI both = hn::BitCast(DI(), pairs);
  return hn::Add(sum, hn::Add(hn::ShiftRight<16>(both), hn::ShiftRight<16>(hn::ShiftLeft<16>(both))));
}

// dot[r] = sum over groups first .. last - 1 of (code - offset) * activation, for kLanes columns from `col` on.
// Products and their sums stay in 16 bits as long as they provably fit: kGroups groups of two products a lane, at most
// 2 * 127 * (2^bits - 1) each.
template <int kBits, int kOffsetLog2, int kRows>
HWY_INLINE void BlockDots(const uint8_t* codes, int col, int first, int last, const ActBlock* act, int64_t act_stride,
                          VI* dot) {
  constexpr int kGroups = kBits == 4 ? 4 : kBits == 5 ? 4 : kBits == 6 ? 2 : 1;
  static_assert(kBits == 8 || kGroups * 2 * 127 * ((1 << kBits) - 1) <= 32767);
  const DI di;
  const DI16 di16;
  WEIR_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const ActBlock& a = act[r * act_stride];
    int32_t start = 0;
    if constexpr (kOffsetLog2 >= 0 && kBits != 8) {
      start = last - first == 8 ? a.neg_sum : first == 0 ? a.neg_sum_lo : a.neg_sum - a.neg_sum_lo;
      start *= 1 << kOffsetLog2;
    }
    dot[r] = hn::Set(di, start);
  }
  WEIR_UNROLL
  for (int from = first; from < last; from += kGroups) {
    VI16 pairs[kRows];
    WEIR_UNROLL
    for (int g = from; g < from + kGroups; ++g) {
      const VI16 w = hn::BitCast(di16, LoadGroup<kBits>(codes, g, 4 * col));
      VI16 even;  // bytes 0 and 2 of every column
      if constexpr (kBits == 8) {
        even = hn::ShiftRight<8>(hn::ShiftLeft<8>(w));
      } else {
        even = hn::And(w, hn::Set(di16, 0xff));
      }
      const VI16 odd = hn::ShiftRight<8>(w);  // bytes 1 and 3
      WEIR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        int32_t four;
        std::memcpy(&four, act[r * act_stride].q + 4 * g, 4);
        const VI16 a = hn::BitCast(di16, hn::Set(di, four));
        const VI16 products =
            hn::Add(hn::Mul(even, hn::ShiftRight<8>(hn::ShiftLeft<8>(a))), hn::Mul(odd, hn::ShiftRight<8>(a)));
        pairs[r] = g == from ? products : hn::Add(pairs[r], products);
      }
    }
    WEIR_UNROLL
    for (int r = 0; r < kRows; ++r) dot[r] = AddHalves(dot[r], pairs[r]);
  }
}

#else  // HWY_SCALAR has no vectors to reinterpret

HWY_INLINE VF LoadHalfs(const uint8_t* from) { return LoadPlain<DType::kF16>(from); }

template <typename T>
HWY_INLINE VF LoadBytes(const uint8_t* from) {
  return hn::Set(DF(), static_cast<float>(static_cast<T>(*from)));
}

template <int kBits, int kOffsetLog2, int kRows>
HWY_INLINE void BlockDots(const uint8_t* codes, int col, int first, int last, const ActBlock* act, int64_t act_stride,
                          VI* dot) {
  int32_t sum[kRows] = {};
  for (int k = 4 * first; k < 4 * last; ++k) {
    const int code = GetCode(kBits, codes, col, k) - (kOffsetLog2 >= 0 ? 1 << std::max(kOffsetLog2, 0) : 0);
    WEIR_UNROLL
    for (int r = 0; r < kRows; ++r) sum[r] += code * act[r * act_stride].q[k];
  }
  WEIR_UNROLL
  for (int r = 0; r < kRows; ++r) dot[r] = hn::Set(DI(), sum[r]);
}

#endif  // HWY_TARGET != HWY_SCALAR

// kRows rows times kLanes columns from vector `vector` of a panel, all of k.
template <DType kType, int kRows>
HWY_INLINE void BlockTile(const ProductArgs& args, int64_t panel, int64_t row, int vector) {
  constexpr PackLayout kLayout = LayoutOf(kType);
  constexpr bool kMin = kLayout.scales == ScaleKind::kHalfMin || kLayout.scales == ScaleKind::kSuper;
  constexpr int kHalves = kLayout.scales == ScaleKind::kSuper16 ? 2 : 1;
  const DF df;
  const int64_t n_blocks = args.w->n_blocks();
  const ActBlock* act = args.act + row * n_blocks;
  const uint8_t* codes = args.w->panel(args.first_panel + panel);
  const uint8_t* scales = codes + n_blocks * kLayout.code_bytes();
  const int col = vector * kLanes;
  VF sum[kRows];
  WEIR_UNROLL
  for (int r = 0; r < kRows; ++r) sum[r] = hn::Zero(df);
  for (int64_t b = 0; b < n_blocks; ++b, ++act, codes += kLayout.code_bytes()) {
    VF scale[2], add = hn::Zero(df);
    if constexpr (kLayout.scales == ScaleKind::kHalf) {
      scale[0] = LoadHalfs(scales + b * 32 + 2 * col);
    } else if constexpr (kLayout.scales == ScaleKind::kHalfMin) {
      scale[0] = LoadHalfs(scales + b * 64 + 2 * col);
      add = LoadHalfs(scales + b * 64 + 32 + 2 * col);
    } else {
      const uint8_t* super = scales + b / kSuperBlocks * kLayout.super_bytes();
      const VF d = LoadHalfs(super + 2 * col);
      if constexpr (kLayout.scales == ScaleKind::kSuper) {
        const uint8_t* sub = super + 64 + b % kSuperBlocks * 32 + col;
        scale[0] = hn::Mul(d, LoadBytes<uint8_t>(sub));
        add = hn::Neg(hn::Mul(LoadHalfs(super + 32 + 2 * col), LoadBytes<uint8_t>(sub + 16)));
      } else {
        const uint8_t* sub = super + 32 + b % kSuperBlocks * 32 + col;
        scale[0] = hn::Mul(d, LoadBytes<int8_t>(sub));
        scale[1] = hn::Mul(d, LoadBytes<int8_t>(sub + 16));
      }
    }
    WEIR_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      VI dot[kRows];
      BlockDots<kLayout.bits, kLayout.offset_log2, kRows>(codes, col, half * 8 / kHalves, (half + 1) * 8 / kHalves, act,
                                                          n_blocks, dot);
      WEIR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const ActBlock& a = act[r * n_blocks];
        sum[r] = hn::MulAdd(hn::Mul(hn::ConvertTo(df, dot[r]), scale[half]), hn::Set(df, a.d), sum[r]);
        if constexpr (kMin) sum[r] = hn::MulAdd(add, hn::Set(df, a.d_sum), sum[r]);
      }
    }
  }
  WEIR_UNROLL
  for (int r = 0; r < kRows; ++r) StoreColumns(args, panel, row + r, vector, sum[r]);
}

template <DType kType>
void Blocks(const ProductArgs& args) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
  vnni::Quantised<kType>(args);
#else
  for (int64_t panel = 0; panel < args.n_panels; ++panel) {
    for (int vector = 0; vector < kVectors; ++vector) {
      int64_t row = 0;
      for (; row + 4 <= args.n_rows; row += 4) BlockTile<kType, 4>(args, panel, row, vector);
      for (; row < args.n_rows; ++row) BlockTile<kType, 1>(args, panel, row, vector);
    }
  }
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

const char* TargetNameImpl() { return hwy::TargetName(HWY_TARGET); }

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {

HWY_EXPORT(ProductImpl);
HWY_EXPORT(RoundImpl);
HWY_EXPORT(TargetNameImpl);

void Product(const ProductArgs& args) { HWY_DYNAMIC_DISPATCH(ProductImpl)(args); }
void RoundActivations(const float* x, int64_t n_blocks, ActBlock* out) {
  HWY_DYNAMIC_DISPATCH(RoundImpl)(x, n_blocks, out);
}
const char* TargetName() { return HWY_DYNAMIC_DISPATCH(TargetNameImpl)(); }

}  // namespace weir::cpu
#endif
