// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/attention_kernels.h"
#include "backend/cpu/unroll.h"
#include "ops/kv_slots.h"

#define HWY_WANT_AVX3_DL
// Arrays of vectors need vectors of a size known at compile time.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention_slots.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// After foreach_target.h: compiled once per target.
#include "backend/cpu/attention-inl.h"
#include "backend/cpu/attention_score-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Per-thread scratch.
struct SlotScratch {
  float* q;       // [kMaxSlotRows, head_dim] scaled
  float* q_tile;  // [kMaxSlotRows, head_dim] rotated relative to a tile's first slot, or prepared for codes
  float* cos;     // [kMaxSlotRows, head_dim / 2] of the rows' positions
  float* sin;
  float* rel_cos;  // [head_dim / 2] of a row's position relative to a tile
  float* rel_sin;
  float* p;  // [kMaxSlotRows, kScoreStride] scores, then weights
  float*
      decoded;  // [kRopeTile, head_dim] keys that are transformed, or whose rotated part does not divide into vectors
};

int64_t Padded(int64_t n) { return (n + 15) / 16 * 16; }

SlotScratch Carve(float* base, int64_t head_dim) {
  SlotScratch s;
  const auto take = [&](int64_t n) {
    float* p = base;
    base += Padded(n);
    return p;
  };
  s.q = take(kMaxSlotRows * head_dim);
  s.q_tile = take(kMaxSlotRows * head_dim);
  s.cos = take(kMaxSlotRows * head_dim / 2);
  s.sin = take(kMaxSlotRows * head_dim / 2);
  s.rel_cos = take(head_dim / 2);
  s.rel_sin = take(head_dim / 2);
  s.p = take(kMaxSlotRows * kScoreStride);
  s.decoded = take(kRopeTile * head_dim);
  return s;
}

// out[m] += sum_s p[m, s] * v[index[s]] for elements [i, i + kN vectors) and kM query rows.
template <class D, DType kType, int kM, int kN>
HWY_INLINE void MixElements(const uint8_t* values, const int32_t* index, int64_t slot_bytes, int64_t n_slots, int64_t i,
                            const float* p, float* out, int64_t out_stride, const Ahead& ahead) {
  const D d;
  using V = hn::Vec<D>;
  constexpr int64_t kStep = hn::MaxLanes(D());
  V acc[kM][kN];
  WEIR_UNROLL
  for (int m = 0; m < kM; ++m) {
    WEIR_UNROLL
    for (int n = 0; n < kN; ++n) acc[m][n] = hn::LoadU(d, out + m * out_stride + i + n * kStep);
  }
  for (int64_t s = 0; s < n_slots; ++s) {
    if (i == 0) Fetch(ahead, s, 1);
    V v[kN];
    WEIR_UNROLL
    for (int n = 0; n < kN; ++n) v[n] = LoadStored<kType>(d, values + index[s] * slot_bytes, i + n * kStep);
    WEIR_UNROLL
    for (int m = 0; m < kM; ++m) {
      const V weight = hn::Set(d, p[m * kScoreStride + s]);
      WEIR_UNROLL
      for (int n = 0; n < kN; ++n) acc[m][n] = hn::MulAdd(weight, v[n], acc[m][n]);
    }
  }
  WEIR_UNROLL
  for (int m = 0; m < kM; ++m) {
    WEIR_UNROLL
    for (int n = 0; n < kN; ++n) hn::StoreU(acc[m][n], d, out + m * out_stride + i + n * kStep);
  }
}

template <DType kType, int kM>
void MixRows(const uint8_t* values, const int32_t* index, int64_t n_slots, int64_t head_dim, const float* p, float* out,
             int64_t out_stride, const Ahead& ahead) {
  const int64_t slot_bytes = SlotBytes(kType, head_dim);
  int64_t i = 0;
  for (; i + 4 * kLanes <= head_dim; i += 4 * kLanes) {
    MixElements<DF, kType, kM, 4>(values, index, slot_bytes, n_slots, i, p, out, out_stride, ahead);
  }
  for (; i + 2 * kLanes <= head_dim; i += 2 * kLanes) {
    MixElements<DF, kType, kM, 2>(values, index, slot_bytes, n_slots, i, p, out, out_stride, ahead);
  }
  for (; i + kLanes <= head_dim; i += kLanes) {
    MixElements<DF, kType, kM, 1>(values, index, slot_bytes, n_slots, i, p, out, out_stride, ahead);
  }
  for (; i < head_dim; i += kLanes8) {
    MixElements<DF8, kType, kM, 1>(values, index, slot_bytes, n_slots, i, p, out, out_stride, ahead);
  }
}

// Slots of transformed values that are added up together.
#if WEIR_MULTIPLIES_WORDS
constexpr int64_t kMixTile = kWeightTile;
#else
constexpr int64_t kMixTile = kRopeTile;
#endif

// Numbers of up to kMixTile slots' blocks, as F16: those at `offset` of each.
struct HalfNumbers {
  HWY_ALIGN uint16_t at[kMixTile];
};
HWY_INLINE void Gather(const uint8_t* const (&slots)[kMixTile], int64_t offset, int64_t n_slots, HalfNumbers* out) {
  for (int64_t s = 0; s < n_slots; ++s) std::memcpy(&out->at[s], slots[s] + offset, sizeof(uint16_t));
}
HWY_INLINE hn::Vec<DF> NumbersFrom(const HalfNumbers& numbers, int64_t s) {
  const hn::Rebind<hwy::float16_t, DF> dh;
  return hn::PromoteTo(DF(), hn::Load(dh, reinterpret_cast<const hwy::float16_t*>(numbers.at + s)));
}

#if !WEIR_MULTIPLIES_WORDS
// out[m][b] += sum_s weight[m][b][s] * code[b][s] for kBlocks blocks, at `offset` of each of n_slots slots, kM queries.
template <class Block, int kM, int kBlocks>
HWY_INLINE void MixFloats(const uint8_t* const (&slots)[kMixTile], int64_t offset, int64_t n_slots,
                          const float (&weight)[kM][kBlocks][kMixTile], float* out, int64_t out_stride,
                          const Ahead& ahead) {
  constexpr int kVectors = kBlockVectors<Block>;
  const DF d;
  using V = hn::Vec<DF>;
  V acc[kM][kBlocks][kVectors];
  WEIR_UNROLL
  for (int m = 0; m < kM; ++m) {
    WEIR_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      const float* sums = out + m * out_stride + b * Block::kElements;
      WEIR_UNROLL
      for (int j = 0; j < kVectors; ++j) acc[m][b][j] = hn::LoadU(d, sums + j * kLanes);
    }
  }
  for (int64_t s = 0; s < n_slots; ++s) {
    Fetch(ahead, s, 1);
    const uint8_t* block = slots[s] + offset;
    WEIR_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      V v[kVectors];
      LoadCodes<Block>(block + b * static_cast<int64_t>(sizeof(Block)), v);
      WEIR_UNROLL
      for (int m = 0; m < kM; ++m) {
        const V w = hn::Set(d, weight[m][b][s]);
        WEIR_UNROLL
        for (int j = 0; j < kVectors; ++j) acc[m][b][j] = hn::MulAdd(w, v[j], acc[m][b][j]);
      }
    }
  }
  WEIR_UNROLL
  for (int m = 0; m < kM; ++m) {
    WEIR_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      float* sums = out + m * out_stride + b * Block::kElements;
      WEIR_UNROLL
      for (int j = 0; j < kVectors; ++j) hn::StoreU(acc[m][b][j], d, sums + j * kLanes);
    }
  }
}
#endif

// MixElements for kBlocks blocks of transformed values, at `offset` of each of n_slots slots. The weights carry the
// scales, and what codes share is added as a sum.
template <class Block, int kM, int kBlocks>
HWY_INLINE void MixBlocks(const uint8_t* const (&slots)[kMixTile], int64_t offset, int64_t n_slots, const float* p,
                          float* out, int64_t out_stride, const Ahead& ahead) {
  constexpr int kVectors = kBlockVectors<Block>;
  const DF d;
  using V = hn::Vec<DF>;
  // Zero from n_slots on, where the weights are zero or cannot be relied on.
  HalfNumbers scale[kBlocks] = {};
  [[maybe_unused]] HalfNumbers minimum[Block::kCodes.has_addend() ? kBlocks : 1] = {};
  WEIR_UNROLL
  for (int b = 0; b < kBlocks; ++b) {
    const int64_t block = offset + b * static_cast<int64_t>(sizeof(Block));
    Gather(slots, block + offsetof(Block, d), n_slots, &scale[b]);
    if constexpr (Block::kCodes.has_addend()) Gather(slots, block + offsetof(Block, m), n_slots, &minimum[b]);
  }
#if WEIR_MULTIPLIES_WORDS
  WordWeights weight[kM][kBlocks];
#else
  HWY_ALIGN float weight[kM][kBlocks][kMixTile];
#endif
  WEIR_UNROLL
  for (int m = 0; m < kM; ++m) {
    WEIR_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      V shared = hn::Zero(d), weights[kMixTile / kLanes];
      WEIR_UNROLL
      for (int i = 0; i < kMixTile / kLanes; ++i) {
        const int64_t s = i * kLanes;
        const V scales = NumbersFrom(scale[b], s);
        const V of_row = hn::IfThenElseZero(hn::Ne(scales, hn::Zero(d)), hn::LoadU(d, p + m * kScoreStride + s));
        weights[i] = hn::Mul(of_row, scales);
        if constexpr (Block::kCodes.has_addend()) {
          const V minima = NumbersFrom(minimum[b], s);
          const V of_slots = hn::LoadU(d, p + m * kScoreStride + s);
          shared = hn::Add(shared, hn::IfThenElseZero(hn::Ne(minima, hn::Zero(d)), hn::Mul(of_slots, minima)));
        } else {
          shared = hn::MulAdd(weights[i], hn::Set(d, -static_cast<float>(Block::kCodes.offset())), shared);
        }
      }
      const V sum = hn::SumOfLanes(d, shared);
      float* sums = out + m * out_stride + b * Block::kElements;
      WEIR_UNROLL
      for (int j = 0; j < kVectors; ++j)
        hn::StoreU(hn::Add(sum, hn::LoadU(d, sums + j * kLanes)), d, sums + j * kLanes);
#if WEIR_MULTIPLIES_WORDS
      weight[m][b].Set(weights);
#else
      WEIR_UNROLL
      for (int i = 0; i < kMixTile / kLanes; ++i) hn::Store(weights[i], d, weight[m][b] + i * kLanes);
#endif
    }
  }
#if WEIR_MULTIPLIES_WORDS
  MixWords<Block>(slots, offset, n_slots, weight, out, out_stride,
                  [&](int64_t s, int64_t n) HWY_ATTR { Fetch(ahead, s, n); });
#else
  MixFloats<Block>(slots, offset, n_slots, weight, out, out_stride, ahead);
#endif
}

// MixRows for transformed values; the sums stay transformed (MergePartials).
template <class Block, int kM>
void MixTransformed(const uint8_t* values, const int32_t* index, int64_t n_slots, int64_t head_dim, const float* p,
                    float* out, int64_t out_stride, Ahead ahead) {
  const int64_t n_blocks = head_dim / Block::kElements, slot_bytes = n_blocks * static_cast<int64_t>(sizeof(Block));
  for (int64_t first = 0; first < n_slots; first += kMixTile) {
    const int64_t n = std::min<int64_t>(kMixTile, n_slots - first);
    Ahead of_tile = ahead;
    of_tile.n = ahead.entry(n);
    ahead.index += of_tile.n;
    ahead.n -= of_tile.n;
    const uint8_t* slots[kMixTile];
    PlacesOf(values, index + first, slot_bytes, n, slots);
    const auto mix = [&](auto blocks, int64_t b) HWY_ATTR {
      MixBlocks<Block, kM, blocks()>(slots, b * static_cast<int64_t>(sizeof(Block)), n, p + first,
                                     out + b * Block::kElements, out_stride, of_tile);
      of_tile.n = 0;
    };
    int64_t b = 0;
    // As many accumulators as MixRows has.
    if constexpr (kLanes == 16) {
      for (; b + 2 <= n_blocks; b += 2) mix(std::integral_constant<int, 2>(), b);
    }
    for (; b < n_blocks; ++b) mix(std::integral_constant<int, 1>(), b);
  }
}

void Mix(DType type, const uint8_t* values, const int32_t* index, int64_t n_slots, int64_t head_dim, int64_t n_rows,
         const float* p, float* out, int64_t out_stride, Ahead ahead) {
  WithSlotType(type, [&](auto kind) {
    WithRows<IsTransformed(kind()) ? kShareCodes : kShare>(n_rows, [&](auto rows, int64_t first) {
      const float* weights = p + first * kScoreStride;
      float* sums = out + first * out_stride;
      if constexpr (IsTransformed(kind())) {
        using Block = typename BlockOf<kind()>::type;
        MixTransformed<Block, rows()>(values, index, n_slots, head_dim, weights, sums, out_stride, ahead);
      } else {
        MixRows<kind(), rows()>(values, index, n_slots, head_dim, weights, sums, out_stride, ahead);
      }
      ahead.n = 0;
    });
  });
}

// Scores to weights for one row and block; the row sees slots [n_hidden, n_visible) of n_slots. `partial` holds the
// sums so far, its maximum minus infinity while there are none.
void SoftmaxBlock(float* p, int64_t n_slots, int64_t n_hidden, int64_t n_visible, int64_t head_dim, float* partial) {
  const DF d;
  using V = hn::Vec<DF>;
  const float minus_inf = -std::numeric_limits<float>::infinity();
  n_visible = std::clamp<int64_t>(n_visible, 0, n_slots);
  const int64_t n_padded = (n_slots + kLanes - 1) / kLanes * kLanes;
  n_hidden = std::max<int64_t>(n_hidden, 0);
  if (n_hidden >= n_visible) return std::fill(p, p + n_padded, 0.0f);
  std::fill(p, p + n_hidden, minus_inf);
  std::fill(p + n_visible, p + n_padded, minus_inf);
  float& max = partial[head_dim];
  float& sum = partial[head_dim + 1];
  V max_v = hn::Load(d, p);
  for (int64_t i = kLanes; i < n_padded; i += kLanes) max_v = hn::Max(max_v, hn::Load(d, p + i));
  const float new_max = std::max(max, hn::GetLane(hn::MaxOfLanes(d, max_v)));
  if (new_max != max) {
    const float shrink = hn::GetLane(Exp2NonPositive(d, hn::Set(d, max - new_max)));
    for (int64_t i = 0; i < head_dim; ++i) partial[i] *= shrink;
    sum *= shrink;
    max = new_max;
  }
  V sum_v = hn::Zero(d);
  const V max_all = hn::Set(d, new_max);
  for (int64_t i = 0; i < n_padded; i += kLanes) {
    const V e = Exp2NonPositive(d, hn::Sub(hn::Load(d, p + i), max_all));
    hn::Store(e, d, p + i);
    sum_v = hn::Add(sum_v, e);
  }
  sum += hn::GetLane(hn::SumOfLanes(d, sum_v));
}

// Scales the queries. Where stored keys are rotated, or need no rotation, also rotates them and transforms them as the
// keys; otherwise only prepares their angles.
void PrepareQueries(const HeadTask& task, int64_t n_rows, const SlotScratch& s) {
  const AttentionArgs& args = *task.args;
  const int64_t head_dim = args.head_dim, n_pairs = task.n_pairs();
  for (int64_t j = 0; j < n_rows; ++j) {
    float* q = s.q + j * head_dim;
    ScaleQuery(task.q(j), args, q);
    if (task.rotate_keys()) {
      AnglesOf(*args.rope, task.own_slot(j), s.cos + j * n_pairs, s.sin + j * n_pairs);
    } else {
      RotateQuery(task, j, q);
      if (IsTransformed(args.k_type)) PrepareForCodes(q, head_dim, s.q_tile + j * head_dim);
    }
  }
}

// q_tile = the queries rotated by their position minus the tile's first slot: the remainder of R(p - s) for the keys is
// R(s - base), whose table is small enough to stay in the L1 cache.
void RotateQueries(const HeadTask& task, int64_t n_rows, int64_t first_slot, const SlotScratch& s) {
  const RopeTable& rope = *task.args->rope;
  const int64_t head_dim = task.args->head_dim, n_pairs = task.n_pairs();
  const float* base_cos = &rope.base_cos[first_slot / kRopeTile * n_pairs];
  const float* base_sin = &rope.base_sin[first_slot / kRopeTile * n_pairs];
  for (int64_t j = 0; j < n_rows; ++j) {
    if (j == 0 || task.row(j) != task.row(j - 1)) {
      const float* cos = s.cos + j * n_pairs;
      const float* sin = s.sin + j * n_pairs;
      CombineAngles<true>(cos, sin, base_cos, base_sin, n_pairs, s.rel_cos, s.rel_sin);
    }
    const float* q = s.q + j * head_dim;
    float* out = s.q_tile + j * head_dim;
    RotatePairs(s.rel_cos, s.rel_sin, n_pairs, q, out);
    std::copy(q + 2 * n_pairs, q + head_dim, out + 2 * n_pairs);
  }
}

// The listed slots of a block of which all have been scored (HeadTask::picks()), counted from the block's first.
struct Picked {
  int32_t index[kSlotBlock];
  int64_t n = 0;

  void List(const HeadTask& task, int64_t block, int64_t n_slots) {
    const int32_t* end = task.listed() + task.n_listed();
    n = 0;
    for (const int32_t* at = std::lower_bound(task.listed(), end, block); at < end && *at < block + n_slots; ++at) {
      index[n++] = static_cast<int32_t>(*at - block);
    }
  }
  // Entries before a slot.
  int64_t Before(int64_t slot) const { return std::lower_bound(index, index + n, slot) - index; }
  // Keeps their scores, in order.
  void Take(float* p) const {
    for (int64_t i = 0; i < n; ++i) p[i] = p[index[i]];
  }
};

// Keys prefetched at the beginning, when there was no earlier block to prefetch them: enough that the first are
// processed while the others arrive.
constexpr int64_t kFirstFetch = 2 * kRopeTile;

// One range [first, end) into one partial result; the call continues to call_end.
void AttendRange(const HeadTask& task, int64_t first, int64_t end, int64_t call_end, const SlotScratch& s,
                 float* partials) {
  const AttentionArgs& args = *task.args;
  const int64_t head_dim = args.head_dim, n_rows = task.n_query_rows();
  const int64_t partial_floats = PartialFloats(head_dim);
  const int64_t k_bytes = SlotBytes(args.k_type, head_dim), v_bytes = SlotBytes(args.v_type, head_dim);
  const bool rotate = task.rotate_keys();
  const uint8_t* keys = task.segment->k[task.kv_head];
  const uint8_t* values = task.segment->v[task.kv_head];
  const int32_t* selected = task.selected();
  const bool picks = task.picks();
  Picked picked;
  for (int64_t j = 0; j < n_rows; ++j) {
    std::fill_n(partials + j * partial_floats, partial_floats, 0.0f);
    partials[j * partial_floats + head_dim] = -std::numeric_limits<float>::infinity();
  }
  // Windows move with the rows: the first row begins at the oldest slot.
  const int64_t oldest = task.first_visible(0);
  const int64_t begin = std::max(first, oldest / kSlotBlock * kSlotBlock);
  // A block's keys, as far as this call reads them.
  const auto keys_of = [&](int64_t block) {
    const int64_t n = std::clamp<int64_t>(call_end - block, 0, kSlotBlock);
    if (selected == nullptr) return Ahead{keys + block * k_bytes, k_bytes, kInOrder.data(), n};
    return Ahead{keys, k_bytes, selected + block, n};
  };
  if (begin >= end) return;
  Fetch(keys_of(begin), std::max<int64_t>(0, oldest - begin) / kRopeTile * kRopeTile, kFirstFetch);
  for (int64_t block = begin; block < end; block += kSlotBlock) {
    const int64_t n_slots = std::min(kSlotBlock, end - block);
    // Slots of the block: from_slot + index[0 .. n_slots).
    const int64_t from_slot = selected == nullptr ? block : 0;
    const int32_t* index = selected == nullptr ? kInOrder.data() : selected + block;
    for (int64_t at = std::max<int64_t>(0, oldest - block) / kRopeTile * kRopeTile; at < n_slots;) {
      TileArgs t;
      t.n_slots = std::min<int64_t>(kRopeTile, n_slots - at);
      t.index = selected == nullptr ? kInOrder.data() : index + at;
      int64_t base = selected == nullptr ? block + at : 0;
      int32_t offsets[kRopeTile];
      if (rotate && selected != nullptr) {
        // Listed slots of one tile of positions share the remaining rotation.
        base = index[at] / kRopeTile * kRopeTile;
        int64_t n = 0;
        for (; n < t.n_slots && index[at + n] < base + kRopeTile; ++n)
          offsets[n] = static_cast<int32_t>(index[at + n] - base);
        t.n_slots = n;
        t.index = offsets;
      }
      t.keys = keys + base * k_bytes;
      t.slot_bytes = k_bytes;
      t.head_dim = head_dim;
      t.n_pairs = rotate ? task.n_pairs() : 0;
      t.cos = rotate ? args.rope->off_cos.data() : nullptr;
      t.sin = rotate ? args.rope->off_sin.data() : nullptr;
      t.turned_cos = rotate ? args.rope->turned_cos.data() : nullptr;
      t.turned_sin = rotate ? args.rope->turned_sin.data() : nullptr;
      t.q = rotate || IsTransformed(args.k_type) ? s.q_tile : s.q;
      t.scores = s.p + at;
      t.score_stride = kScoreStride;
      t.ahead = {values + from_slot * v_bytes, v_bytes, index + at, t.n_slots};
      if (rotate) RotateQueries(task, n_rows, base, s);
      Score(args.k_type, t, n_rows, s.decoded);
      at += t.n_slots;
    }
    Ahead next = keys_of(block + kSlotBlock);
    int64_t n_mixed = n_slots;
    if (picks) {
      picked.List(task, block, n_slots);
      n_mixed = picked.n;
      index = picked.index;
      next.per_slot = (next.n << Ahead::kShift) / std::max<int64_t>(picked.n, 1) + 1;
    }
    for (int64_t j = 0; j < n_rows; ++j) {
      float* p = s.p + j * kScoreStride;
      int64_t n_hidden = task.first_visible(j) - block, n_visible = task.n_visible(j) - block;
      if (picks) {
        picked.Take(p);
        n_hidden = picked.Before(n_hidden);
        n_visible = picked.Before(n_visible);
      }
      if (args.softcap > 0) CapScores(p, (n_mixed + kLanes - 1) / kLanes * kLanes, args.softcap);
      SoftmaxBlock(p, n_mixed, n_hidden, n_visible, head_dim, partials + j * partial_floats);
    }
    Mix(args.v_type, values + from_slot * v_bytes, index, n_mixed, head_dim, n_rows, s.p, partials, partial_floats,
        next);
  }
}

void AttendSlotsSimd(const HeadTask& task, int64_t first, int64_t end, int64_t range, float* partials, float* scratch) {
  const SlotScratch s = Carve(scratch, task.args->head_dim);
  const int64_t n_rows = task.n_query_rows();
  PrepareQueries(task, n_rows, s);
  for (; first < end; first += range) {
    AttendRange(task, first, std::min(end, first + range), end, s, partials);
    partials += n_rows * PartialFloats(task.args->head_dim);
  }
}

void MergePartialsSimd(const HeadTask& task, int64_t n_ranges, const float* partials) {
  const DF d;
  const int64_t head_dim = task.args->head_dim, n_rows = task.n_query_rows();
  const int64_t partial_floats = PartialFloats(head_dim);
  for (int64_t j = 0; j < n_rows; ++j) {
    const float* first = partials + j * partial_floats;
    const int64_t stride = n_rows * partial_floats;
    float max = first[head_dim];
    for (int64_t r = 1; r < n_ranges; ++r) max = std::max(max, first[r * stride + head_dim]);
    const bool has_sink = task.args->sinks != nullptr;
    if (has_sink) max = std::max(max, task.sink(j));
    float* out = task.out(j);
    std::fill_n(out, head_dim, 0.0f);
    float sum = has_sink ? hn::GetLane(Exp2NonPositive(d, hn::Set(d, task.sink(j) - max))) : 0.0f;
    for (int64_t r = 0; r < n_ranges; ++r) {
      const float* p = first + r * stride;
      const float weight = hn::GetLane(Exp2NonPositive(d, hn::Set(d, p[head_dim] - max)));
      sum += weight * p[head_dim + 1];
      for (int64_t i = 0; i < head_dim; ++i) out[i] += weight * p[i];
    }
    const float inverse = 1.0f / sum;
    for (int64_t i = 0; i < head_dim; ++i) out[i] *= inverse;
    if (IsTransformed(task.args->v_type)) Hadamard(out, head_dim);
  }
}

}  // namespace
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {

HWY_EXPORT(AttendSlotsSimd);
HWY_EXPORT(MergePartialsSimd);

void AttendSlots(const HeadTask& task, int64_t first, int64_t end, int64_t range, float* partials, float* scratch) {
  HWY_DYNAMIC_DISPATCH(AttendSlotsSimd)(task, first, end, range, partials, scratch);
}

void MergePartials(const HeadTask& task, int64_t n_ranges, const float* partials) {
  HWY_DYNAMIC_DISPATCH(MergePartialsSimd)(task, n_ranges, partials);
}

int64_t AttendSlotsFloats(int64_t head_dim) {
  const auto padded = [](int64_t n) { return (n + 15) / 16 * 16; };
  return 2 * padded(kMaxSlotRows * head_dim) + 2 * padded(kMaxSlotRows * head_dim / 2) + 2 * padded(head_dim / 2) +
         kMaxSlotRows * kScoreStride + padded(kRopeTile * head_dim);
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
