// SPDX-License-Identifier: Apache-2.0
// Scores of few query rows over one tile of slots, for attention_slots.cc; compiled once per target.
#if defined(WEIR_BACKEND_CPU_ATTENTION_SCORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_BACKEND_CPU_ATTENTION_SCORE_INL_H_
#undef WEIR_BACKEND_CPU_ATTENTION_SCORE_INL_H_
#else
#define WEIR_BACKEND_CPU_ATTENTION_SCORE_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "hwy/cache_control.h"

#include "backend/cpu/attention-inl.h"
#include "backend/cpu/attention_kernels.h"
#include "backend/cpu/attention_turned-inl.h"
#include "backend/cpu/attention_words-inl.h"
#include "backend/cpu/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace {

// Query rows that share a loaded key or value: 4 x 4 accumulators need 32 registers.
constexpr int kShare = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64 ? 4 : 2;

// Calls fn(std::integral_constant<int, n>(), first) for n <= kMost rows at a time.
template <int kMost = kShare, class Fn>
HWY_INLINE void WithRows(int64_t n_rows, const Fn& fn) {
  for (int64_t first = 0; first < n_rows;) {
    const int64_t n = std::min<int64_t>(n_rows - first, kMost);
    if (n == 1) fn(std::integral_constant<int, 1>(), first);
    if (n == 2) fn(std::integral_constant<int, 2>(), first);
    if constexpr (kMost > 2) {
      if (n == 3) fn(std::integral_constant<int, 3>(), first);
      if (n == 4) fn(std::integral_constant<int, 4>(), first);
    }
    first += n;
  }
}

// The sums of four vectors, as four consecutive floats.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void StoreSums4(D d, V a, V b, V c, V e, float* out) {
#if HWY_TARGET == HWY_SCALAR
  out[0] = hn::GetLane(a), out[1] = hn::GetLane(b), out[2] = hn::GetLane(c), out[3] = hn::GetLane(e);
#else
  const V ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));  // a02 b02 a13 b13
  const V ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const hn::RepartitionToWide<D> dw;
  const auto low = hn::InterleaveLower(dw, hn::BitCast(dw, ab), hn::BitCast(dw, ce));
  const auto high = hn::InterleaveUpper(dw, hn::BitCast(dw, ab), hn::BitCast(dw, ce));
  const V sums = hn::Add(hn::BitCast(d, low), hn::BitCast(d, high));
  if constexpr (hn::MaxLanes(D()) == 4) {
    hn::StoreU(sums, d, out);
  } else {
    const hn::Half<D> dh;
    const auto half = hn::Add(hn::LowerHalf(dh, sums), hn::UpperHalf(dh, sums));
    if constexpr (hn::MaxLanes(D()) == 8) {
      hn::StoreU(half, dh, out);
    } else {
      const hn::Half<hn::Half<D>> dq;
      hn::StoreU(hn::Add(hn::LowerHalf(dq, half), hn::UpperHalf(dq, half)), dq, out);
    }
  }
#endif
}

// The slots to read after the current ones. Prefetching them overlaps memory access with arithmetic: the hardware
// prefetchers neither follow a list nor look past the end of a block.
struct Ahead {
  const uint8_t* slots = nullptr;
  int64_t slot_bytes = 0;
  const int32_t* index = nullptr;  // [n]
  int64_t n = 0;
  static constexpr int kShift = 16;
  int64_t per_slot = 1 << kShift;  // entries for each of the current slots, in units of 2^-kShift

  int64_t entry(int64_t slot) const { return std::min(n, (slot * per_slot) >> kShift); }
};

// Whether n > 0 entries of a list, which are ascending, are neighbours.
HWY_INLINE bool AreNeighbours(const int32_t* index, int64_t n) { return index[n - 1] - index[0] == n - 1; }

// Prefetches what belongs to the current slots [first, first + n), as far as it exists.
HWY_INLINE void Fetch(const Ahead& ahead, int64_t first, int64_t n) {
  const int64_t begin = ahead.entry(first), end = ahead.entry(first + n);
  if (begin >= end) return;
  // Several small slots share a cache line.
  const bool once = AreNeighbours(ahead.index + begin, end - begin);
  const int64_t n_bytes = once ? (end - begin) * ahead.slot_bytes : ahead.slot_bytes;
  for (int64_t i = begin; i < (once ? begin + 1 : end); ++i) {
    const uint8_t* slot = ahead.slots + ahead.index[i] * ahead.slot_bytes;
    for (int64_t b = 0; b < n_bytes; b += 64) hwy::Prefetch(slot + b);
  }
}

// Where n > 0 listed slots are; what is left of `out` repeats the last one.
template <size_t kN>
HWY_INLINE void PlacesOf(const uint8_t* slots, const int32_t* index, int64_t slot_bytes, int64_t n,
                         const uint8_t* (&out)[kN]) {
  if (n == kN && AreNeighbours(index, n)) {
    const uint8_t* first = slots + index[0] * slot_bytes;
    for (const uint8_t*& at : out) {
      at = first;
      first += slot_bytes;
    }
    return;
  }
  for (int64_t i = 0; i < static_cast<int64_t>(kN); ++i) out[i] = slots + index[std::min(i, n - 1)] * slot_bytes;
}

// Inputs of ScoreTile: up to kRopeTile slots and the query rows, rotated relative to the tile.
struct TileArgs {
  const uint8_t* keys;
  const int32_t* index;  // [n_slots] slot numbers, counted from `keys`; within a tile when n_pairs > 0
  int64_t slot_bytes, n_slots, head_dim;
  int64_t n_pairs;   // pairs that ScoreTile rotates; 0 = keys are used unchanged
  const float* cos;  // [kRopeTile, n_pairs] of offsets within a tile
  const float* sin;
  const float* turned_cos;  // the same as [n_pairs, kRopeTile]
  const float* turned_sin;
  const float* q;  // [n, head_dim], or what PrepareForCodes() made of them
  float* scores;   // [n, score_stride]; written up to the next multiple of 4 slots, or of the lanes
  int64_t score_stride;
  Ahead ahead;  // one for every slot of the tile
};

// Scores of kM query rows: four slots at a time, each key vector decoded and rotated once for all rows.
template <class D, DType kType, int kM>
void ScoreTile(const TileArgs& t) {
  const D d;
  using V = hn::Vec<D>;
  constexpr int64_t kStep = hn::MaxLanes(D());
  const int64_t n_rot = 2 * t.n_pairs;
  for (int64_t slot = 0; slot < t.n_slots; slot += 4) {
    const uint8_t* key[4];
    const float* cos[4];
    const float* sin[4];
    WEIR_UNROLL
    for (int64_t j = 0; j < 4; ++j) {
      const int64_t in_use = std::min(slot + j, t.n_slots - 1);  // a short last group repeats its last slot
      const int64_t at = t.index[in_use];
      key[j] = t.keys + at * t.slot_bytes;
      cos[j] = t.cos + at * t.n_pairs;
      sin[j] = t.sin + at * t.n_pairs;
    }
    Fetch(t.ahead, slot, 4);
    V acc[kM][4];
    WEIR_UNROLL
    for (int m = 0; m < kM; ++m) {
      WEIR_UNROLL
      for (int j = 0; j < 4; ++j) acc[m][j] = hn::Zero(d);
    }
    for (int64_t i = 0; i < t.n_pairs; i += kStep) {
      V q0[kM], q1[kM];
      WEIR_UNROLL
      for (int m = 0; m < kM; ++m) {
        q0[m] = hn::LoadU(d, t.q + m * t.head_dim + i);
        q1[m] = hn::LoadU(d, t.q + m * t.head_dim + t.n_pairs + i);
      }
      WEIR_UNROLL
      for (int j = 0; j < 4; ++j) {
        const V c = hn::LoadU(d, cos[j] + i), s = hn::LoadU(d, sin[j] + i);
        const V x0 = LoadStored<kType>(d, key[j], i), x1 = LoadStored<kType>(d, key[j], t.n_pairs + i);
        const V y0 = hn::NegMulAdd(x1, s, hn::Mul(x0, c));
        const V y1 = hn::MulAdd(x0, s, hn::Mul(x1, c));
        WEIR_UNROLL
        for (int m = 0; m < kM; ++m) {
          acc[m][j] = hn::MulAdd(q0[m], y0, acc[m][j]);
          acc[m][j] = hn::MulAdd(q1[m], y1, acc[m][j]);
        }
      }
    }
    for (int64_t i = n_rot; i < t.head_dim; i += kStep) {
      V q[kM];
      WEIR_UNROLL
      for (int m = 0; m < kM; ++m) q[m] = hn::LoadU(d, t.q + m * t.head_dim + i);
      WEIR_UNROLL
      for (int j = 0; j < 4; ++j) {
        const V x = LoadStored<kType>(d, key[j], i);
        WEIR_UNROLL
        for (int m = 0; m < kM; ++m) acc[m][j] = hn::MulAdd(q[m], x, acc[m][j]);
      }
    }
    WEIR_UNROLL
    for (int m = 0; m < kM; ++m) {
      StoreSums4(d, acc[m][0], acc[m][1], acc[m][2], acc[m][3], t.scores + m * t.score_stride + slot);
    }
  }
}

// The same tile for rows from `first` on; the first ones have prefetched what comes.
HWY_INLINE TileArgs ForRows(TileArgs t, int64_t first) {
  t.q += first * t.head_dim;
  t.scores += first * t.score_stride;
  if (first > 0) t.ahead.n = 0;
  return t;
}

template <class D, DType kType>
void ScoreRows(const TileArgs& t, int64_t n_rows) {
  WithRows(n_rows, [&](auto rows, int64_t first) { ScoreTile<D, kType, rows()>(ForRows(t, first)); });
}

template <class D>
bool Divides(int64_t head_dim, int64_t n_pairs) {
  constexpr int64_t kStep = hn::MaxLanes(D());
  return n_pairs % kStep == 0 && (head_dim - 2 * n_pairs) % kStep == 0;
}

// Query rows that share a key or value of a transformed type that is read as it is stored.
constexpr int kShareCodes = WEIR_MULTIPLIES_WORDS ? 4 : kShare;

// A query for keys of a transformed type that are used as they are, [head_dim]: `room` gets what TileArgs::q has of it.
HWY_INLINE void PrepareForCodes(float* q, int64_t head_dim, [[maybe_unused]] float* room) {
  Hadamard(q, head_dim);
#if WEIR_MULTIPLIES_WORDS
  StoreAsWords(q, head_dim, room);
#else
  std::copy(q, q + head_dim, room);
#endif
}

// Scores over such keys; the queries are transformed instead (PrepareForCodes).
#if WEIR_MULTIPLIES_WORDS
template <class Block, int kM>
void ScoreCodes(const TileArgs& t) {
  const WordQueries<kM> q(t.q, t.head_dim);
  for (int64_t slot = 0; slot < t.n_slots; slot += kLanes) {
    Fetch(t.ahead, slot, kLanes);
    const uint8_t* keys[kLanes];
    PlacesOf(t.keys, t.index + slot, t.slot_bytes, std::min<int64_t>(kLanes, t.n_slots - slot), keys);
    hn::Vec<DF> scores[kM];
    ScoreWords<Block>(q, keys, scores);
    WEIR_UNROLL
    for (int m = 0; m < kM; ++m) hn::StoreU(scores[m], DF(), t.scores + m * t.score_stride + slot);
  }
}
#else
template <class Block, int kM>
void ScoreCodes(const TileArgs& t) {
  const DF d;
  using V = hn::Vec<DF>;
  constexpr int kVectors = kBlockVectors<Block>;
  for (int64_t slot = 0; slot < t.n_slots; slot += 4) {
    const uint8_t* key[4];
    WEIR_UNROLL
    for (int64_t j = 0; j < 4; ++j) {
      key[j] = t.keys + t.index[std::min(slot + j, t.n_slots - 1)] * t.slot_bytes;
    }
    Fetch(t.ahead, slot, 4);
    V acc[kM][4];
    WEIR_UNROLL
    for (int m = 0; m < kM; ++m) {
      WEIR_UNROLL
      for (int j = 0; j < 4; ++j) acc[m][j] = hn::Zero(d);
    }
    for (int64_t i = 0; i < t.head_dim; i += Block::kElements) {
      V q[kM][kVectors];
      WEIR_UNROLL
      for (int m = 0; m < kM; ++m) {
        WEIR_UNROLL
        for (int n = 0; n < kVectors; ++n) q[m][n] = hn::LoadU(d, t.q + m * t.head_dim + i + n * kLanes);
      }
      WEIR_UNROLL
      for (int j = 0; j < 4; ++j) {
        V x[kVectors];
        LoadElements<Block>(key[j], x);
        key[j] += sizeof(Block);
        WEIR_UNROLL
        for (int m = 0; m < kM; ++m) {
          WEIR_UNROLL
          for (int n = 0; n < kVectors; ++n) acc[m][j] = hn::MulAdd(q[m][n], x[n], acc[m][j]);
        }
      }
    }
    WEIR_UNROLL
    for (int m = 0; m < kM; ++m) {
      StoreSums4(d, acc[m][0], acc[m][1], acc[m][2], acc[m][3], t.scores + m * t.score_stride + slot);
    }
  }
}
#endif

#if WEIR_MULTIPLIES_WORDS
// Scores over keys of such a type that are rotated, all of a tile's.
template <class Block>
void ScoreInOrder(const TileArgs& t, int64_t n_rows, float* decoded) {
  const float factor = HadamardFactor(t.head_dim);
  for (int64_t slot = 0; slot < t.n_slots; slot += kLanes) {
    Fetch(t.ahead, slot, kLanes);
    const uint8_t* keys[kLanes];
    PlacesOf(t.keys, t.index + slot, t.slot_bytes, std::min<int64_t>(kLanes, t.n_slots - slot), keys);
    TurnKeys<Block>(keys, t.head_dim, decoded);
    WithRows<kShareCodes>(n_rows, [&](auto rows, int64_t first) HWY_ATTR {
      ScoreTurned<rows()>(t.q + first * t.head_dim, decoded, t.head_dim, t.n_pairs, t.turned_cos + slot,
                          t.turned_sin + slot, factor, t.scores + first * t.score_stride + slot, t.score_stride);
    });
  }
}
#endif

// Keys that are transformed and rotated are read from their decoded form, which stays in the L1 cache.
template <DType kType>
void ScoreAny(TileArgs t, int64_t n_rows, float* decoded) {
  if constexpr (!IsTransformed(kType)) {
    if (Divides<DF>(t.head_dim, t.n_pairs)) return ScoreRows<DF, kType>(t, n_rows);
    if (Divides<DF8>(t.head_dim, t.n_pairs)) return ScoreRows<DF8, kType>(t, n_rows);
  } else if (t.n_pairs == 0) {
    return WithRows<kShareCodes>(n_rows, [&](auto rows, int64_t first) {
      ScoreCodes<typename BlockOf<kType>::type, rows()>(ForRows(t, first));
    });
  }
#if WEIR_MULTIPLIES_WORDS
  if constexpr (IsTransformed(kType)) {
    if (t.index == kInOrder.data()) return ScoreInOrder<typename BlockOf<kType>::type>(t, n_rows, decoded);
  }
#endif
  [[maybe_unused]] const float factor = IsTransformed(kType) ? HadamardFactor(t.head_dim) : 1.0f;
  const bool rotate_here = !Divides<DF>(t.head_dim, t.n_pairs);
  for (int64_t s = 0; s < t.n_slots; ++s) {
    // Where it is rotated later, every key at its place in the tile, where its angles are.
    const int64_t at = t.index[s];
    float* key = decoded + (rotate_here ? s : at) * t.head_dim;
    DecodeSlot<kType>(t.keys + at * t.slot_bytes, t.head_dim, factor, key);
    if (rotate_here && t.n_pairs > 0) RotatePairs(t.cos + at * t.n_pairs, t.sin + at * t.n_pairs, t.n_pairs, key, key);
  }
  t.keys = reinterpret_cast<const uint8_t*>(decoded);
  t.slot_bytes = t.head_dim * static_cast<int64_t>(sizeof(float));
  if (!rotate_here) return ScoreRows<DF, DType::kF32>(t, n_rows);
  t.index = kInOrder.data();
  t.n_pairs = 0;
  ScoreRows<DF8, DType::kF32>(t, n_rows);
}

void Score(DType type, const TileArgs& t, int64_t n_rows, float* decoded) {
  WithSlotType(type, [&](auto kind) { ScoreAny<kind()>(t, n_rows, decoded); });
}

}  // namespace
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
