// SPDX-License-Identifier: Apache-2.0
// Products of F16 and BF16 panels with many rounded rows (MatMulArgs::rounds_halfs): both factors are integers of 14
// bits with a scale for 32 along k, so that a block's sum just fits 32 bits. pmaddwd multiplies and adds 16 pairs where
// a float instruction does 8. Weights are rounded once for all rows of a call, some blocks of a panel at a time, into
// the first-level cache. Included by plain_weights.cc, once per target.

#include <algorithm>
#include <cstring>

#include "backend/cpu/matmul.h"
#include "backend/cpu/matmul_tile-inl.h"
#include "backend/cpu/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_SSSE3  // Arm's widening products are no faster than its float ones

static_assert(int64_t{kQ8Block} * kHalfsMax * kHalfsMax <= INT32_MAX);

using DI16 = hn::Repartition<int16_t, DI>;

inline constexpr int kHalfBlocks = 16;  // at a time: 17 KiB of codes and scales
inline constexpr int kPairs = kQ8Block / 2;
inline constexpr int64_t kBlockBytes = kQ8Block * kPanel * 2;

struct RoundedHalfs {
  alignas(64) int32_t pairs[kHalfBlocks][kPairs][kPanel];  // of two codes, the lower k in the lower half
  alignas(64) float scale[kHalfBlocks][kPanel];

  // Blocks first_block to first_block + n - 1 of a panel; numbers past n_in are zero.
  template <DType kType>
  HWY_INLINE void Fill(const uint8_t* panel, int64_t n_in, int64_t first_block, int n) {
    const DF df;
    const DI di;
    // A number near it has its integer part, rounded to nearest even, in its lowest 16 bits.
    const VF shift = hn::Set(df, 0x1.8p23f), max = hn::Set(df, static_cast<float>(kHalfsMax));
    for (int b = 0; b < n; ++b) {
      const int64_t k = (first_block + b) * kQ8Block;
      const auto n_k = static_cast<int>(std::min<int64_t>(kQ8Block, n_in - k));
      const uint8_t* block = panel + k * kPanel * 2;
      alignas(64) uint16_t largest_of[kPanel];
      Largest(block, n_k, largest_of);
      for (int v = 0; v < kVectors; ++v) {
        const VF largest = LoadPlain<kType>(reinterpret_cast<const uint8_t*>(largest_of + v * kLanes));
        const auto tiny = hn::Lt(largest, hn::Set(df, kQ8Smallest));
        const VF inverse = hn::IfThenZeroElse(tiny, hn::Div(max, largest));
        hn::Store(hn::IfThenZeroElse(tiny, hn::Div(largest, max)), df, scale[b] + v * kLanes);
        const auto code = [&](int i) HWY_ATTR {
          const VF weight = LoadPlain<kType>(block + (i * kPanel + v * kLanes) * 2);
          return hn::BitCast(di, hn::MulAdd(weight, inverse, shift));
        };
        for (int p = 0; p < n_k / 2; ++p) {
          const VI low = hn::And(code(2 * p), hn::Set(di, 0xffff));
          hn::Store(hn::Or(low, hn::ShiftLeft<16>(code(2 * p + 1))), di, pairs[b][p] + v * kLanes);
        }
        for (int p = n_k / 2; p < kPairs; ++p) {  // a last one without a partner, and none
          const VI last = n_k == 2 * p + 1 ? hn::And(code(2 * p), hn::Set(di, 0xffff)) : hn::Zero(di);
          hn::Store(last, di, pairs[b][p] + v * kLanes);
        }
      }
    }
  }

  // The largest magnitude of each column among n_k rows of a panel: those of 16 bits are in the order of their bits.
  static HWY_INLINE void Largest(const uint8_t* block, int n_k, uint16_t* out) {
    const hn::CappedTag<uint16_t, kPanel> du16;
    for (size_t c = 0; c < kPanel; c += hn::Lanes(du16)) {
      const auto bits = [&](int i) HWY_ATTR {
        return hn::And(hn::LoadU(du16, reinterpret_cast<const uint16_t*>(block) + i * kPanel + c),
                       hn::Set(du16, 0x7fff));
      };
      auto even = hn::Zero(du16), odd = even;
      int i = 0;
      for (; i + 1 < n_k; i += 2) {
        even = hn::Max(even, bits(i));
        odd = hn::Max(odd, bits(i + 1));
      }
      if (i < n_k) even = hn::Max(even, bits(i));
      hn::Store(hn::Max(even, odd), du16, out + c);
    }
  }
};

HWY_INLINE VI MulPairs(VI sum, VI a, VI b) {
  const DI16 di16;
  VI none = hn::Zero(DI());
  return hn::ReorderWidenMulAccumulate(DI(), hn::BitCast(di16, a), hn::BitCast(di16, b), sum, none);
}

// kRows rows of sums, of which the first block of a panel starts new ones, and n more blocks. `next`: what to fetch
// meanwhile, as many bytes as these blocks have; nullptr: nothing.
template <int kRows>
HWY_INLINE void HalfsTile(const RoundedHalfs& w, int n, const HalfsBlock* act, int64_t act_stride, bool starts,
                          const uint8_t* next, float (*sums)[kPanel]) {
  const DF df;
  const DI di;
  VF sum[kRows][kVectors];
  WEIR_UNROLL
  for (int r = 0; r < kRows; ++r) {
    WEIR_UNROLL
    for (int v = 0; v < kVectors; ++v) sum[r][v] = starts ? hn::Zero(df) : hn::Load(df, sums[r] + v * kLanes);
  }
  for (int b = 0; b < n; ++b, ++act) {
    if (next != nullptr) {
      for (int64_t line = 0; line < kBlockBytes; line += 64) __builtin_prefetch(next + line, 0, 2);
      next += kBlockBytes;
    }
    VI dot[kRows][kVectors];
    WEIR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      WEIR_UNROLL
      for (int v = 0; v < kVectors; ++v) dot[r][v] = hn::Zero(di);
    }
    WEIR_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      VI codes[kVectors];
      WEIR_UNROLL
      for (int v = 0; v < kVectors; ++v) codes[v] = hn::Load(di, w.pairs[b][p] + v * kLanes);
      WEIR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        int32_t two;
        std::memcpy(&two, act[r * act_stride].q + 2 * p, 4);
        const VI a = hn::Set(di, two);
        WEIR_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          dot[r][v] = MulPairs(dot[r][v], codes[v], a);
          WEIR_IN_ORDER(dot[r][v]);
        }
      }
    }
    WEIR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const VF d = hn::Set(df, act[r * act_stride].d);
      WEIR_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const VF scaled = hn::Mul(hn::ConvertTo(df, dot[r][v]), hn::Load(df, w.scale[b] + v * kLanes));
        sum[r][v] = hn::MulAdd(scaled, d, sum[r][v]);
      }
    }
  }
  WEIR_UNROLL
  for (int r = 0; r < kRows; ++r) {
    WEIR_UNROLL
    for (int v = 0; v < kVectors; ++v) hn::Store(sum[r][v], df, sums[r] + v * kLanes);
  }
}

// All rows, at most kHalfsTaskRows, times a panel.
template <DType kType>
void HalfsPanel(const ProductArgs& args, int64_t panel) {
  constexpr int kRows = 12 / kVectors;  // of a tile: the registers hold its sums
  const int64_t n_in = args.w->n_in(), n_blocks = HalfsBlocks(n_in);
  const uint8_t* packed = args.w->panel(args.first_panel + panel);
  RoundedHalfs w;
  alignas(64) float sums[kHalfsTaskRows][kPanel];
  for (int64_t first = 0; first < n_blocks; first += kHalfBlocks) {
    const int n = static_cast<int>(std::min<int64_t>(kHalfBlocks, n_blocks - first));
    w.Fill<kType>(packed, n_in, first, n);
    const HalfsBlock* act = args.halfs + first;
    // The next blocks, or those of the panel that follows, are fetched while the first rows are multiplied.
    const uint8_t* next = packed + (first + n == n_blocks ? args.w->panel_bytes() : (first + n) * kBlockBytes);
    int64_t r = 0;
    for (; r + kRows <= args.n_rows; r += kRows) {
      HalfsTile<kRows>(w, n, act + r * n_blocks, n_blocks, first == 0, r == 0 ? next : nullptr, sums + r);
    }
    for (; r < args.n_rows; ++r) {
      HalfsTile<1>(w, n, act + r * n_blocks, n_blocks, first == 0, nullptr, sums + r);
    }
  }
  for (int64_t r = 0; r < args.n_rows; ++r) {
    for (int v = 0; v < kVectors; ++v) StoreColumns(args, panel, r, v, hn::Load(DF(), sums[r] + v * kLanes));
  }
}

inline constexpr bool kHasHalfs = true;

template <DType kType>
void HalfsProduct(const ProductArgs& args) {
  for (int64_t panel = 0; panel < args.n_panels; ++panel) HalfsPanel<kType>(args, panel);
}

#else

inline constexpr bool kHasHalfs = false;
template <DType kType>
void HalfsProduct(const ProductArgs&) {}

#endif

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
