// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/attention_kernels.h"
#include "backend/cpu/simd.h"
#include "backend/cpu/unroll.h"
#include "ops/kv_slots.h"

#define HWY_WANT_AVX3_DL
// Arrays of vectors need vectors of a size known at compile time.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention_rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// After foreach_target.h: compiled once per target.
#include "backend/cpu/attention-inl.h"
#include "backend/cpu/score_noise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors of query rows in one register tile, of four slots: their sums fit 32 registers, or 16.
constexpr int64_t kTileVectors = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64 ? 4 : 3;

static_assert(kRowBlock <= kTileSlots && kRowBlock % 16 == 0);

// Pairs: a lane holds two factors that are consecutive along the sum, rounded to bfloat16 (the lower half is the
// first), and one instruction multiplies both and adds them to an F32 sum. Highway 1.0.3 does not have it.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
constexpr bool kHasPairs = true;

// Lanes [first of a, first of b], from F32.
HWY_INLINE hn::Vec<DF> PairLanes(hn::Vec<DF> a, hn::Vec<DF> b) {
  alignas(64) static constexpr uint16_t kOrder[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  hn::Vec<DF> both;  // all of a, then all of b
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(both.raw) : "v"(b.raw), "v"(a.raw));
  both.raw = _mm512_castsi512_ps(_mm512_permutexvar_epi16(_mm512_load_si512(kOrder), _mm512_castps_si512(both.raw)));
  return both;
}

// Consecutive lanes of a vector, then those of the next one.
HWY_INLINE hn::Vec<DF> PairNeighbours(hn::Vec<DF> a, hn::Vec<DF> next) {
  hn::Vec<DF> both;
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(both.raw) : "v"(next.raw), "v"(a.raw));
  return both;
}

HWY_INLINE hn::Vec<DF> MulAddPairs(hn::Vec<DF> a, hn::Vec<DF> b, hn::Vec<DF> sum) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
}
#else
constexpr bool kHasPairs = false;
HWY_INLINE hn::Vec<DF> PairLanes(hn::Vec<DF> a, hn::Vec<DF>) { return a; }
HWY_INLINE hn::Vec<DF> PairNeighbours(hn::Vec<DF> a, hn::Vec<DF>) { return a; }
HWY_INLINE hn::Vec<DF> MulAddPairs(hn::Vec<DF>, hn::Vec<DF>, hn::Vec<DF> sum) { return sum; }
#endif

// One panel's share of the scratch. Query rows are the innermost index wherever both are present; p, k, v, cos and sin
// are shared by the panels. With pairs, q, k, v and `pairs` hold them in their first halves: the index of the sum
// counts pairs, for keys within a row of head_dim floats.
struct RowScratch {
  float* q;      // [head_dim, kRowBlock] scaled, rotated
  float* out;    // [head_dim, kRowBlock] weighted sums of values
  float* p;      // [kTileSlots, kRowBlock] scores, then weights
  float* pairs;  // weights in pairs; may be p
  float* k;      // [kTileSlots, head_dim]; also the row-major form of queries and outputs
  float* v;      // [kTileSlots, head_dim]
  float* limit;  // [kRowBlock] slots the row sees beyond those of the block's first row
  float* first;  // [kRowBlock] slots that row sees and this row's window has passed
  float* max;    // [kRowBlock] largest score so far
  float* sum;    // [kRowBlock] sum of weights
  float* cos;    // [head_dim / 2]
  float* sin;
};

// Fills n_panels entries.
void Carve(float* base, int64_t head_dim, int64_t n_panels, RowScratch* panels) {
  RowScratch s;
  const auto take = [&](int64_t n) {
    float* p = base;
    base += (n + 15) / 16 * 16;
    return p;
  };
  s.p = s.pairs = take(kTileSlots * kRowBlock);
  s.k = take(kTileSlots * head_dim);
  s.v = take(kTileSlots * head_dim);
  s.cos = take(head_dim / 2);
  s.sin = take(head_dim / 2);
  for (int64_t i = 0; i < n_panels; ++i) {
    s.q = take(head_dim * kRowBlock);
    s.out = take(head_dim * kRowBlock);
    s.limit = take(kRowBlock);
    s.first = take(kRowBlock);
    s.max = take(kRowBlock);
    s.sum = take(kRowBlock);
    panels[i] = s;
  }
}

// c[i, rows] (+)= sum_k a(i, k) * b[k, rows] for kI consecutive i and kV vectors of rows; rows kRowBlock floats apart.
template <bool kPairs, int kI, int kV, bool kAccumulate>
HWY_INLINE void TileProduct(const float* HWY_RESTRICT a, int64_t i_stride, int64_t k_stride, int64_t n_k,
                            const float* HWY_RESTRICT b, float* HWY_RESTRICT c) {
  const DF d;
  using V = hn::Vec<DF>;
  V acc[kI][kV];
  WEIR_UNROLL
  for (int i = 0; i < kI; ++i) {
    WEIR_UNROLL
    for (int v = 0; v < kV; ++v) acc[i][v] = kAccumulate ? hn::Load(d, c + i * kRowBlock + v * kLanes) : hn::Zero(d);
  }
  for (int64_t k = 0; k < n_k; ++k) {
    V rows[kV];
    WEIR_UNROLL
    for (int v = 0; v < kV; ++v) rows[v] = hn::Load(d, b + k * kRowBlock + v * kLanes);
    WEIR_UNROLL
    for (int i = 0; i < kI; ++i) {
      const V x = hn::Set(d, a[i * i_stride + k * k_stride]);
      WEIR_UNROLL
      for (int v = 0; v < kV; ++v) {
        acc[i][v] = kPairs ? MulAddPairs(x, rows[v], acc[i][v]) : hn::MulAdd(x, rows[v], acc[i][v]);
      }
    }
  }
  WEIR_UNROLL
  for (int i = 0; i < kI; ++i) {
    WEIR_UNROLL
    for (int v = 0; v < kV; ++v) hn::Store(acc[i][v], d, c + i * kRowBlock + v * kLanes);
  }
}

// The whole product of n_i (a multiple of 8) by n_vectors vectors of rows. The sum over k of an element is computed in
// order whatever the tile shape.
template <bool kPairs, bool kAccumulate>
HWY_INLINE void Product(const float* a, int64_t i_stride, int64_t k_stride, int64_t n_i, int64_t n_k, const float* b,
                        float* c, int64_t n_vectors) {
  int64_t v = 0;
  for (; v + kTileVectors <= n_vectors; v += kTileVectors) {
    for (int64_t i = 0; i < n_i; i += 4) {
      TileProduct<kPairs, 4, kTileVectors, kAccumulate>(a + i * i_stride, i_stride, k_stride, n_k, b + v * kLanes,
                                                        c + i * kRowBlock + v * kLanes);
    }
  }
  for (; v + 2 <= n_vectors; v += 2) {
    for (int64_t i = 0; i < n_i; i += 4) {
      TileProduct<kPairs, 4, 2, kAccumulate>(a + i * i_stride, i_stride, k_stride, n_k, b + v * kLanes,
                                             c + i * kRowBlock + v * kLanes);
    }
  }
  for (; v < n_vectors; ++v) {
    for (int64_t i = 0; i < n_i; i += 8) {
      TileProduct<kPairs, 8, 1, kAccumulate>(a + i * i_stride, i_stride, k_stride, n_k, b + v * kLanes,
                                             c + i * kRowBlock + v * kLanes);
    }
  }
}

// Slots first + index[0 .. n) as F32 rows, or with kStored as they are stored; the rows up to n_padded become zero.
template <bool kStored>
void DecodeTile(DType type, const uint8_t* slots, int64_t first, const int32_t* index, int64_t n, int64_t n_padded,
                int64_t head_dim, float* out) {
  const int64_t slot_bytes = SlotBytes(type, head_dim);
  const float factor = HadamardFactor(head_dim);
  WithSlotType(type, [&](auto kind) {
    for (int64_t s = 0; s < n; ++s) {
      const uint8_t* slot = slots + (first + index[s]) * slot_bytes;
      if constexpr (kStored) {
        DecodeStored<kind()>(slot, head_dim, out + s * head_dim);
      } else {
        DecodeSlot<kind()>(slot, head_dim, factor, out + s * head_dim);
      }
    }
  });
  std::fill(out + n * head_dim, out + n_padded * head_dim, 0.0f);
}

// to[i, j] = from[j, i], from of n_j rows. Blocks keep both sides within a few cache lines.
void Transpose(const float* HWY_RESTRICT from, int64_t from_stride, int64_t n_i, int64_t n_j, float* HWY_RESTRICT to,
               int64_t to_stride) {
  for (int64_t i0 = 0; i0 < n_i; i0 += 8) {
    const int64_t i_end = std::min(n_i, i0 + 8);
    for (int64_t j = 0; j < n_j; ++j) {
      for (int64_t i = i0; i < i_end; ++i) to[i * to_stride + j] = from[j * from_stride + i];
    }
  }
}

// Rows of pairs from rows 2i and 2i + 1 of n rows (even), in place; their first `width` floats.
void PairRows(float* x, int64_t n, int64_t width, int64_t stride) {
  const DF d;
  for (int64_t i = 0; i < n; i += 2) {
    for (int64_t j = 0; j < width; j += kLanes) {
      const auto pairs = PairLanes(hn::Load(d, x + i * stride + j), hn::Load(d, x + (i + 1) * stride + j));
      hn::Store(pairs, d, x + i / 2 * stride + j);
    }
  }
}

// Pairs within each of n rows, in place.
void PairColumns(float* x, int64_t n, int64_t stride) {
  const DF d;
  for (int64_t i = 0; i < n; ++i) {
    float* row = x + i * stride;
    for (int64_t j = 0; j < stride; j += 2 * kLanes) {
      hn::Store(PairNeighbours(hn::Load(d, row + j), hn::Load(d, row + j + kLanes)), d, row + j / 2);
    }
  }
}

// Queries [first, first + n) scaled, rotated and transposed; rows up to a whole vector become zero.
template <bool kPairs>
void PrepareQueries(const HeadTask& task, int64_t first, int64_t n, int64_t n_vectors, const RowScratch& s) {
  const AttentionArgs& args = *task.args;
  const int64_t head_dim = args.head_dim, n_pairs = task.n_pairs();
  int64_t angles_of_row = -1;
  const float* cos = s.cos;
  const float* sin = s.sin;
  for (int64_t j = 0; j < n; ++j) {
    float* q = s.k + j * head_dim;
    ScaleQuery(task.q(first + j), args, q);
    if (n_pairs == 0) continue;
    const int64_t row = task.row(first + j);
    if (args.keys_rotated) {
      cos = args.row_cos + row * n_pairs;
      sin = args.row_sin + row * n_pairs;
    } else if (row != angles_of_row) {
      AnglesOf(*args.rope, task.own_slot(first + j), s.cos, s.sin);
      angles_of_row = row;
    }
    RotatePairs(cos, sin, n_pairs, q, q);
  }
  std::fill(s.k + n * head_dim, s.k + n_vectors * kLanes * head_dim, 0.0f);
  Transpose(s.k, head_dim, head_dim, n_vectors * kLanes, s.q, kRowBlock);
  if constexpr (kPairs) PairRows(s.q, head_dim, n_vectors * kLanes, kRowBlock);
  // Padding rows of a vector see the same slots as the last one, so that they stay finite.
  for (int64_t j = 0; j < n_vectors * kLanes; ++j) {
    const int64_t row = first + std::min(j, n - 1);
    s.limit[j] = static_cast<float>(task.n_visible(row) - task.n_visible(first));
    s.first[j] = static_cast<float>(task.first_visible(row) - task.first_visible(first));
  }
}

// Turns scores into weights for one tile: hides slots beyond a row's limit and before its window, updates the running
// maximum, and rescales earlier sums. Pairs are written beside the weights, or over them.
//   n_free: slots of the tile up to the last one that the block's first row sees; may be negative or beyond the tile
//   n_before, n_hidden: slots of the tile before the windows of the block's first and last row; the same
template <bool kPairs>
void SoftmaxTile(int64_t n_free, int64_t n_before, int64_t n_hidden, int64_t n_slots, bool is_first, int64_t n_vectors,
                 int64_t head_dim, const RowScratch& s) {
  const DF d;
  using V = hn::Vec<DF>;
  const V minus_inf = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int64_t v = 0; v < n_vectors; ++v) {
    float* p = s.p + v * kLanes;
    if (n_free < n_slots) {
      const V limit = hn::Load(d, s.limit + v * kLanes);
      for (int64_t i = std::max<int64_t>(n_free, 0); i < n_slots; ++i) {
        const V slot = hn::Set(d, static_cast<float>(i - n_free));
        hn::Store(hn::IfThenElse(hn::Lt(slot, limit), hn::Load(d, p + i * kRowBlock), minus_inf), d, p + i * kRowBlock);
      }
    }
    if (n_hidden > 0) {
      const V first = hn::Load(d, s.first + v * kLanes);
      for (int64_t i = 0; i < std::min(n_hidden, n_slots); ++i) {
        const V slot = hn::Set(d, static_cast<float>(i - n_before));
        hn::Store(hn::IfThenElse(hn::Lt(slot, first), minus_inf, hn::Load(d, p + i * kRowBlock)), d, p + i * kRowBlock);
      }
    }
    V max0 = minus_inf, max1 = minus_inf;
    for (int64_t i = 0; i < n_slots; i += 2) {
      max0 = hn::Max(max0, hn::Load(d, p + i * kRowBlock));
      max1 = hn::Max(max1, hn::Load(d, p + (i + 1) * kRowBlock));
    }
    V max = hn::Max(max0, max1);
    V sum = hn::Zero(d);
    if (!is_first) {
      const V old_max = hn::Load(d, s.max + v * kLanes);
      max = hn::Max(max, old_max);
      sum = hn::Load(d, s.sum + v * kLanes);
      if (!hn::AllTrue(d, hn::Eq(max, old_max))) {
        const V shrink = hn::IfThenZeroElse(hn::Eq(old_max, minus_inf), Exp2NonPositive(d, hn::Sub(old_max, max)));
        sum = hn::Mul(sum, shrink);
        for (int64_t i = 0; i < head_dim; ++i) {
          float* out = s.out + i * kRowBlock + v * kLanes;
          hn::Store(hn::Mul(hn::Load(d, out), shrink), d, out);
        }
      }
    }
    V sum1 = hn::Zero(d);
    // A row whose window begins after this tile has seen nothing yet; the subtracted maximum must be finite.
    const V shift = hn::IfThenElse(hn::Eq(max, minus_inf), hn::Zero(d), max);
    for (int64_t i = 0; i < n_slots; i += 2) {
      const V p0 = Exp2NonPositive(d, hn::Sub(hn::Load(d, p + i * kRowBlock), shift));
      const V p1 = Exp2NonPositive(d, hn::Sub(hn::Load(d, p + (i + 1) * kRowBlock), shift));
      if (!kPairs || s.pairs != s.p) {
        hn::Store(p0, d, p + i * kRowBlock);
        hn::Store(p1, d, p + (i + 1) * kRowBlock);
      }
      if constexpr (kPairs) hn::Store(PairLanes(p0, p1), d, s.pairs + i / 2 * kRowBlock + v * kLanes);
      sum = hn::Add(sum, p0);
      sum1 = hn::Add(sum1, p1);
    }
    hn::Store(max, d, s.max + v * kLanes);
    hn::Store(hn::Add(sum, sum1), d, s.sum + v * kLanes);
  }
}

// Adds one decoded tile to the results of a panel of rows [first, first + n).
template <bool kPairs>
void AttendTile(const HeadTask& task, int64_t first, int64_t n, int64_t slot, bool is_first, int64_t n_padded,
                int64_t n_vectors, const RowScratch& s) {
  constexpr int64_t kPack = kPairs ? 2 : 1;
  const int64_t head_dim = task.args->head_dim;
  Product<kPairs, false>(s.k, head_dim, 1, n_padded, head_dim / kPack, s.q, s.p, n_vectors);
  if (task.args->softcap > 0) {
    for (int64_t i = 0; i < n_padded; ++i) CapScores(s.p + i * kRowBlock, n_vectors * kLanes, task.args->softcap);
  }
  SoftmaxTile<kPairs>(task.n_visible(first) - slot, task.first_visible(first) - slot,
                      task.first_visible(first + n - 1) - slot, n_padded, is_first, n_vectors, head_dim, s);
  const float* weights = kPairs ? s.pairs : s.p;
  if (is_first) {
    Product<kPairs, false>(s.v, 1, head_dim, head_dim, n_padded / kPack, weights, s.out, n_vectors);
  } else {
    Product<kPairs, true>(s.v, 1, head_dim, head_dim, n_padded / kPack, weights, s.out, n_vectors);
  }
}

// Adds the sinks to the sums of weights of n rows: one more score each, without a value.
void AddSinks(const HeadTask& task, int64_t first, int64_t n, int64_t n_vectors, const RowScratch& s) {
  const DF d;
  HWY_ALIGN float sinks[kRowBlock];
  for (int64_t j = 0; j < n_vectors * kLanes; ++j) sinks[j] = task.sink(first + std::min(j, n - 1));
  for (int64_t v = 0; v < n_vectors; ++v) {
    const auto sink = hn::Load(d, sinks + v * kLanes), old_max = hn::Load(d, s.max + v * kLanes);
    const auto max = hn::Max(old_max, sink);
    const auto shrink = Exp2NonPositive(d, hn::Sub(old_max, max));
    const auto of_sink = Exp2NonPositive(d, hn::Sub(sink, max));
    hn::Store(max, d, s.max + v * kLanes);
    hn::Store(hn::MulAdd(hn::Load(d, s.sum + v * kLanes), shrink, of_sink), d, s.sum + v * kLanes);
    for (int64_t i = 0; i < task.args->head_dim; ++i) {
      float* out = s.out + i * kRowBlock + v * kLanes;
      hn::Store(hn::Mul(hn::Load(d, out), shrink), d, out);
    }
  }
}

// Divides by the sums of weights and writes the outputs of n rows.
void FinishPanel(const HeadTask& task, int64_t first, int64_t n, int64_t n_vectors, const RowScratch& s) {
  const DF d;
  const int64_t head_dim = task.args->head_dim;
  if (task.args->sinks != nullptr) AddSinks(task, first, n, n_vectors, s);
  for (int64_t v = 0; v < n_vectors; ++v) {
    const auto inverse = hn::Div(hn::Set(d, 1.0f), hn::Load(d, s.sum + v * kLanes));
    for (int64_t i = 0; i < head_dim; ++i) {
      float* out = s.out + i * kRowBlock + v * kLanes;
      hn::Store(hn::Mul(hn::Load(d, out), inverse), d, out);
    }
  }
  Transpose(s.out, kRowBlock, n, head_dim, s.k, head_dim);
  for (int64_t j = 0; j < n; ++j) {
    if (IsTransformed(task.args->v_type)) Hadamard(s.k + j * head_dim, head_dim);
    std::memcpy(task.out(first + j), s.k + j * head_dim, head_dim * sizeof(float));
  }
}

// What a panel's voting rows leave: tiles [first_tile, n_tiles) of weights, and the maxima they are relative to.
struct PanelWeights {
  float* weights;
  const float* tile_max;
  int64_t first_tile, n_tiles, n_vectors;

  float* of(int64_t tile, int64_t slot) const { return weights + (tile * kTileSlots + slot) * kRowBlock; }
  // What turns a tile's weights of vector v into those relative to the rows' largest score.
  HWY_INLINE hn::Vec<DF> Factor(int64_t tile, int64_t v, const RowScratch& s) const {
    const DF d;
    return Exp2NonPositive(
        d, hn::Sub(hn::Load(d, tile_max + tile * kRowBlock + v * kLanes), hn::Load(d, s.max + v * kLanes)));
  }
};

// Gives the weights of a panel's rows, from `row` of the head on, their noise: exp(z + g) is exp(z) / -ln u. Writes the
// rows' new sums, sinks included.
void AddNoise(const HeadTask& task, const ScoreNoise& noise, int64_t row, int64_t n, const PanelWeights& panel,
              const RowScratch& s, float* sums) {
  const DF d;
  const hn::RebindToUnsigned<DF> du;
  HWY_ALIGN uint32_t low[kRowBlock], high[kRowBlock];
  HWY_ALIGN float sinks[kRowBlock];
  for (int64_t j = 0; j < panel.n_vectors * kLanes; ++j) {
    const int64_t at = row + std::min(j, n - 1);
    const NoiseKey key = noise.key(task.kv_head * task.group() + at % task.group(), at / task.group());
    low[j] = key.low;
    high[j] = key.high;
    if (task.args->sinks != nullptr) sinks[j] = task.sink(at);
  }
  for (int64_t v = 0; v < panel.n_vectors; ++v) {
    const auto key_low = hn::Load(du, low + v * kLanes), key_high = hn::Load(du, high + v * kLanes);
    auto total = hn::Zero(d);
    if (task.args->sinks != nullptr) {
      total = Exp2NonPositive(d, hn::Sub(hn::Load(d, sinks + v * kLanes), hn::Load(d, s.max + v * kLanes)));
    }
    for (int64_t tile = panel.first_tile; tile < panel.n_tiles; ++tile) {
      auto sum = hn::Zero(d);
      for (int64_t i = 0; i < kTileSlots; ++i) {
        float* p = panel.of(tile, i) + v * kLanes;
        const auto slot = hn::Set(du, static_cast<uint32_t>(tile * kTileSlots + i) * kNoiseStride);
        const auto noisy = hn::Div(hn::Load(d, p), NegLogUniform(du, hn::Add(key_low, slot), key_high));
        hn::Store(noisy, d, p);
        sum = hn::Add(sum, noisy);
      }
      total = hn::MulAdd(sum, panel.Factor(tile, v, s), total);
    }
    hn::Store(total, d, sums + v * kLanes);
  }
}

// The sums over a panel's voting rows [first, end), counted within the panel, whose weights sum to row_sums; zeros
// before its tiles and up to `stride`.
void SumColumns(const PanelWeights& panel, const float* row_sums, int64_t first, int64_t end, const RowScratch& s,
                float* sums, int64_t stride) {
  const DF d;
  HWY_ALIGN float votes[kRowBlock] = {};  // 1 / sum of weights of the rows that vote, 0 for the others
  for (int64_t j = first; j < end; ++j) votes[j] = 1.0f / row_sums[j];
  HWY_ALIGN float factor[kRowBlock];
  std::fill(sums, sums + panel.first_tile * kTileSlots, 0.0f);
  for (int64_t tile = panel.first_tile; tile < panel.n_tiles; ++tile) {
    for (int64_t v = 0; v < panel.n_vectors; ++v) {
      hn::Store(hn::Mul(panel.Factor(tile, v, s), hn::Load(d, votes + v * kLanes)), d, factor + v * kLanes);
    }
    for (int64_t i = 0; i < kTileSlots; ++i) {
      const float* p = panel.of(tile, i);
      auto sum = hn::Zero(d);
      for (int64_t v = 0; v < panel.n_vectors; ++v) {
        sum = hn::MulAdd(hn::Load(d, p + v * kLanes), hn::Load(d, factor + v * kLanes), sum);
      }
      sums[tile * kTileSlots + i] = hn::GetLane(hn::SumOfLanes(d, sum));
    }
  }
  std::fill(sums + panel.n_tiles * kTileSlots, sums + stride, 0.0f);
}

template <bool kPairs>
void AttendRowsAs(const HeadTask& task, int64_t first, int64_t n, const ScoreSink* sink, float* scratch) {
  const AttentionArgs& args = *task.args;
  const int64_t head_dim = args.head_dim, n_pairs = task.n_pairs();
  const int64_t n_panels = (n + kRowBlock - 1) / kRowBlock;
  RowScratch panels[kMaxPanels];
  Carve(scratch, head_dim, n_panels, panels);
  const RowScratch& shared = panels[0];
  const auto first_of = [&](int64_t panel) { return first + panel * kRowBlock; };
  const auto rows_of = [&](int64_t panel) { return std::min(kRowBlock, n - panel * kRowBlock); };
  const auto vectors_of = [&](int64_t panel) { return (rows_of(panel) + kLanes - 1) / kLanes; };
  const auto slots_of = [&](int64_t panel) { return task.n_visible(first_of(panel) + rows_of(panel) - 1); };
  for (int64_t i = 0; i < n_panels; ++i)
    PrepareQueries<kPairs>(task, first_of(i), rows_of(i), vectors_of(i), panels[i]);
  // Tiles begin at the same slots whatever the window, so that a row's sums do not depend on its neighbours.
  const auto begin_of = [&](int64_t panel) { return task.first_visible(first_of(panel)) / kTileSlots * kTileSlots; };
  const int64_t n_all = slots_of(n_panels - 1);
  // A voting panel's weights go to separate memory, tile by tile.
  const auto votes = [&](int64_t panel) {
    return sink != nullptr && first_of(panel) < sink->end && first_of(panel) + rows_of(panel) > sink->first;
  };
  const auto weights_of = [&](int64_t panel) { return sink->weights + panel * PanelWeightFloats(n_all); };
  const int64_t n_tiles = (n_all + kTileSlots - 1) / kTileSlots;
  const auto max_of = [&](int64_t panel) { return weights_of(panel) + n_tiles * kTileSlots * kRowBlock; };
  for (int64_t slot = begin_of(0); slot < n_all; slot += kTileSlots) {
    const int64_t n_slots = std::min(kTileSlots, n_all - slot);
    const int64_t n_padded = (n_slots + 7) / 8 * 8;
    const int64_t from_slot = task.selected() == nullptr ? slot : 0;
    const int32_t* index = task.selected() == nullptr ? kInOrder.data() : task.selected() + slot;
    DecodeTile<false>(args.k_type, task.segment->k[task.kv_head], from_slot, index, n_slots, n_padded, head_dim,
                      shared.k);
    if (task.rotate_keys()) {
      for (int64_t i = 0; i < n_slots; ++i) {
        float* key = shared.k + i * head_dim;
        AnglesOf(*args.rope, from_slot + index[i], shared.cos, shared.sin);
        RotatePairs(shared.cos, shared.sin, n_pairs, key, key);
      }
    }
    // Sums of values are transformed at the end (FinishPanel).
    DecodeTile<true>(args.v_type, task.segment->v[task.kv_head], from_slot, index, n_slots, n_padded, head_dim,
                     shared.v);
    if constexpr (kPairs) {
      PairColumns(shared.k, n_padded, head_dim);
      PairRows(shared.v, n_padded, head_dim, head_dim);
    }
    for (int64_t i = 0; i < n_panels; ++i) {
      if (slot < begin_of(i) || slot >= slots_of(i)) continue;
      RowScratch panel = panels[i];
      if (votes(i)) panel.p = weights_of(i) + slot * kRowBlock;
      AttendTile<kPairs>(task, first_of(i), rows_of(i), slot, slot == begin_of(i), n_padded, vectors_of(i), panel);
      if (!votes(i)) continue;
      std::fill(panel.p + n_padded * kRowBlock, panel.p + kTileSlots * kRowBlock, 0.0f);
      std::copy(panel.max, panel.max + kRowBlock, max_of(i) + slot / kTileSlots * kRowBlock);
    }
  }
  for (int64_t i = 0; i < n_panels; ++i) {
    FinishPanel(task, first_of(i), rows_of(i), vectors_of(i), panels[i]);
    if (!votes(i)) continue;
    const PanelWeights weights = {weights_of(i), max_of(i), begin_of(i) / kTileSlots,
                                  (slots_of(i) + kTileSlots - 1) / kTileSlots, vectors_of(i)};
    HWY_ALIGN float noisy[kRowBlock];
    if (sink->noise != nullptr) AddNoise(task, *sink->noise, first_of(i), rows_of(i), weights, panels[i], noisy);
    SumColumns(weights, sink->noise != nullptr ? noisy : panels[i].sum, std::max<int64_t>(sink->first - first_of(i), 0),
               std::min(sink->end - first_of(i), rows_of(i)), panels[i],
               sink->sums + (first_of(i) / kRowBlock - sink->first_panel()) * sink->stride, sink->stride);
  }
}

void AttendRowsSimd(const HeadTask& task, int64_t first, int64_t n, const ScoreSink* sink, float* scratch) {
  if constexpr (kHasPairs) {
    // Whole vectors of pairs.
    if (task.args->bf16 && has_bf16_pairs() && task.args->head_dim % (2 * kLanes) == 0) {
      return AttendRowsAs<true>(task, first, n, sink, scratch);
    }
  }
  AttendRowsAs<false>(task, first, n, sink, scratch);
}

}  // namespace
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {

HWY_EXPORT(AttendRowsSimd);

void AttendRows(const HeadTask& task, int64_t first, int64_t n, const ScoreSink* sink, float* scratch) {
  HWY_DYNAMIC_DISPATCH(AttendRowsSimd)(task, first, n, sink, scratch);
}

int64_t AttendRowsFloats(int64_t head_dim) {
  return kTileSlots * kRowBlock + 2 * kTileSlots * head_dim + 2 * ((head_dim / 2 + 15) / 16 * 16) +
         MaxPanels(head_dim) * (2 * head_dim * kRowBlock + 4 * kRowBlock);
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
