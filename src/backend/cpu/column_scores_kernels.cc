// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/column_scores_kernels.h"

#include <algorithm>
#include <limits>

#include "ops/kv_slots.h"

#define HWY_WANT_AVX3_DL
// Arrays of vectors need vectors of a size known at compile time.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/column_scores_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// After foreach_target.h: compiled once per target.
#include "backend/cpu/attention-inl.h"
#include "backend/cpu/attention_score-inl.h"
#include "backend/cpu/score_noise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kGroup = 4;  // vectors of slots reduced together
static_assert(kWeightPad % (kGroup * kLanes) == 0 && kSlotBlock % kWeightPad == 0);

// Per-thread scratch.
struct BatchScratch {
  float* q;        // [kBatchRows, head_dim] scaled; rotated unless the keys of few rows are scored as stored
  float* q_tile;   // [kMaxSlotRows, head_dim] rotated relative to a tile's first slot, or prepared for codes
  float* row_cos;  // [kMaxSlotRows, head_dim / 2] of the rows' positions
  float* row_sin;
  float* cos;  // [head_dim / 2]
  float* sin;
  float* keys;  // [kRopeTile, head_dim] decoded
};

int64_t Padded(int64_t n) { return (n + 15) / 16 * 16; }

BatchScratch Carve(float* base, int64_t head_dim) {
  BatchScratch s;
  const auto take = [&](int64_t n) {
    float* p = base;
    base += Padded(n);
    return p;
  };
  s.q = take(kBatchRows * head_dim);
  s.q_tile = take(kMaxSlotRows * head_dim);
  s.row_cos = take(kMaxSlotRows * head_dim / 2);
  s.row_sin = take(kMaxSlotRows * head_dim / 2);
  s.cos = take(head_dim / 2);
  s.sin = take(head_dim / 2);
  s.keys = take(kRopeTile * head_dim);
  return s;
}

// Many rows share keys that are decoded and rotated once; for few rows it is cheaper to use stored keys and rotate
// queries relative to every tile, as in attention_slots.cc.
bool DecodesKeys(const ScoreBatch& batch) { return batch.n > kMaxSlotRows; }
bool ReadsCodes(const ScoreBatch& batch) {
  return IsTransformed(batch.task.args->k_type) && !batch.task.rotate_keys() && !DecodesKeys(batch);
}

void PrepareQueries(const ScoreBatch& batch, const BatchScratch& s) {
  const HeadTask& task = batch.task;
  const AttentionArgs& args = *task.args;
  const int64_t head_dim = args.head_dim, n_pairs = task.n_pairs();
  for (int64_t i = 0; i < batch.n; ++i) {
    const int64_t j = batch.row(i);
    float* q = s.q + i * head_dim;
    ScaleQuery(task.q(j), args, q);
    if (task.rotate_keys() && DecodesKeys(batch)) {
      AnglesOf(*args.rope, task.own_slot(j), s.cos, s.sin);
      RotatePairs(s.cos, s.sin, n_pairs, q, q);
    } else if (task.rotate_keys()) {
      AnglesOf(*args.rope, task.own_slot(j), s.row_cos + i * n_pairs, s.row_sin + i * n_pairs);
    } else {
      RotateQuery(task, j, q);
      if (ReadsCodes(batch)) PrepareForCodes(q, head_dim, s.q_tile + i * head_dim);
    }
  }
}

// Scores of one tile from stored keys: t has the keys.
void ScoreStored(const ScoreBatch& batch, int64_t tile, TileArgs t, const BatchScratch& s) {
  const AttentionArgs& args = *batch.task.args;
  if (batch.task.rotate_keys()) {
    const RopeTable& rope = *args.rope;
    const int64_t head_dim = args.head_dim, n_pairs = batch.task.n_pairs();
    const float* base_cos = &rope.base_cos[tile / kRopeTile * n_pairs];
    const float* base_sin = &rope.base_sin[tile / kRopeTile * n_pairs];
    for (int64_t i = 0; i < batch.n; ++i) {
      CombineAngles<true>(s.row_cos + i * n_pairs, s.row_sin + i * n_pairs, base_cos, base_sin, n_pairs, s.cos, s.sin);
      const float* q = s.q + i * head_dim;
      float* out = s.q_tile + i * head_dim;
      RotatePairs(s.cos, s.sin, n_pairs, q, out);
      std::copy(q + 2 * n_pairs, q + head_dim, out + 2 * n_pairs);
    }
    t.n_pairs = n_pairs;
    t.cos = rope.off_cos.data();
    t.sin = rope.off_sin.data();
    t.turned_cos = rope.turned_cos.data();
    t.turned_sin = rope.turned_sin.data();
    t.q = s.q_tile;
  }
  if (ReadsCodes(batch)) t.q = s.q_tile;
  Score(args.k_type, t, batch.n, s.keys);
}

// The same from keys decoded and rotated here.
void ScoreDecoded(const ScoreBatch& batch, int64_t tile, TileArgs t, const BatchScratch& s) {
  const AttentionArgs& args = *batch.task.args;
  const int64_t head_dim = args.head_dim, n_pairs = batch.task.n_pairs();
  const float factor = HadamardFactor(head_dim);
  WithSlotType(args.k_type, [&](auto kind) {
    for (int64_t i = 0; i < t.n_slots; ++i) {
      DecodeSlot<kind()>(t.keys + i * t.slot_bytes, head_dim, factor, s.keys + i * head_dim);
    }
  });
  for (int64_t i = 0; batch.task.rotate_keys() && i < t.n_slots; ++i) {
    AnglesOf(*args.rope, tile + i, s.cos, s.sin);
    RotatePairs(s.cos, s.sin, n_pairs, s.keys + i * head_dim, s.keys + i * head_dim);
  }
  t.keys = reinterpret_cast<const uint8_t*>(s.keys);
  t.slot_bytes = head_dim * static_cast<int64_t>(sizeof(float));
  Score(DType::kF32, t, batch.n, nullptr);
}

// Adds the noise of a row to its scores of slots [slot, slot + n) and divides by its temperature; n is a multiple of
// the lanes. In units of log2, where noise is -log2(-ln u).
void AddNoise(const ScoreNoise& noise, NoiseKey key, float inverse_tau, int64_t slot, int64_t n, float* p) {
  const DF d;
  const hn::RebindToUnsigned<DF> du;
  const auto tau = hn::Set(d, inverse_tau);
  for (int64_t i = 0; i < n; i += kLanes) {
    auto score = hn::Load(d, p + i);
    if (noise.gumbel) {
      const auto of_slots = hn::Mul(hn::Iota(du, static_cast<uint32_t>(slot + i)), hn::Set(du, kNoiseStride));
      const auto e = NegLogUniform(du, hn::Add(of_slots, hn::Set(du, key.low)), hn::Set(du, key.high));
      score = hn::Sub(score, hn::Log2(d, e));
    }
    hn::Store(hn::Mul(score, tau), d, p + i);
  }
}

// Scores to weights relative to their maximum for one row of a block, of which it sees slots [n_hidden, n_visible); 0
// outside, up to n_padded.
void WeighRow(float* p, int64_t n_hidden, int64_t n_visible, int64_t n_padded, float softcap, float* max, float* sum) {
  const DF d;
  using V = hn::Vec<DF>;
  const float minus_inf = -std::numeric_limits<float>::infinity();
  *max = minus_inf;
  *sum = 0;
  n_hidden = std::max<int64_t>(n_hidden, 0);
  if (n_hidden >= n_visible) return std::fill(p, p + n_padded, 0.0f);
  const int64_t n_vectors = (n_visible + kLanes - 1) / kLanes;
  if (softcap > 0) CapScores(p, n_vectors * kLanes, softcap);
  std::fill(p, p + n_hidden, minus_inf);
  std::fill(p + n_visible, p + n_vectors * kLanes, minus_inf);
  std::fill(p + n_vectors * kLanes, p + n_padded, 0.0f);
  V max_v = hn::Load(d, p);
  for (int64_t v = 1; v < n_vectors; ++v) max_v = hn::Max(max_v, hn::Load(d, p + v * kLanes));
  max_v = hn::MaxOfLanes(d, max_v);
  V sum_v = hn::Zero(d);
  for (int64_t v = 0; v < n_vectors; ++v) {
    const V e = Exp2NonPositive(d, hn::Sub(hn::Load(d, p + v * kLanes), max_v));
    hn::Store(e, d, p + v * kLanes);
    sum_v = hn::Add(sum_v, e);
  }
  *max = hn::GetLane(max_v);
  *sum = hn::GetLane(hn::SumOfLanes(d, sum_v));
}

void ScoreBlocksSimd(const ScoreBatch& batch, int64_t first, int64_t end, float* scratch) {
  const HeadTask& task = batch.task;
  const AttentionArgs& args = *task.args;
  const int64_t slot_bytes = SlotBytes(args.k_type, args.head_dim);
  const int64_t n_seen = batch.n_seen();
  end = std::min(end, SlotBlocks(n_seen));
  if (first >= end) return;
  const BatchScratch s = Carve(scratch, args.head_dim);
  PrepareQueries(batch, s);
  const int64_t oldest = batch.first_slot();
  for (int64_t block = first; block < end; ++block) {
    const int64_t slot = block * kSlotBlock;
    const int64_t n_slots = std::min(kSlotBlock, n_seen - slot);
    float* weights = batch.weights + block * batch.n * kSlotBlock;
    for (int64_t tile = std::max<int64_t>(0, oldest - slot) / kRopeTile * kRopeTile; tile < n_slots;
         tile += kRopeTile) {
      TileArgs t = {};
      t.keys = task.segment->k[task.kv_head] + (slot + tile) * slot_bytes;
      t.index = kInOrder.data();
      t.slot_bytes = slot_bytes;
      t.n_slots = std::min<int64_t>(kRopeTile, n_slots - tile);
      t.head_dim = args.head_dim;
      t.q = s.q;
      t.scores = weights + tile;
      t.score_stride = kSlotBlock;
      if (DecodesKeys(batch)) {
        ScoreDecoded(batch, slot + tile, t, s);
      } else {
        ScoreStored(batch, slot + tile, t, s);
      }
    }
    // ReduceBlocks reads the head's part of the block, which may be more than these rows see.
    const int64_t in_use = std::min(kSlotBlock, task.n_slots() - slot);
    const int64_t n_padded = (in_use + kWeightPad - 1) / kWeightPad * kWeightPad;
    const ScoreNoise& noise = batch.args->noise;
    for (int64_t i = 0; i < batch.n; ++i) {
      const int64_t row = batch.row(i);
      const int64_t n_visible = std::min(n_slots, task.n_visible(row) - slot);
      if (noise.on && n_visible > 0) {
        float* p = weights + i * kSlotBlock;
        const int64_t n = (n_visible + kLanes - 1) / kLanes * kLanes, of_group = row % task.group();
        if (args.softcap > 0) CapScores(p, n, args.softcap);
        const int64_t of_segment = row / task.group();
        AddNoise(noise, noise.key(task.kv_head * task.group() + of_group, of_segment), noise.inverse_tau(of_segment),
                 slot, n, p);
      }
      const int64_t at = block * batch.n_padded() + i;
      WeighRow(weights + i * kSlotBlock, task.first_visible(row) - slot, n_visible, n_padded,
               noise.on ? 0 : args.softcap, batch.max + at, batch.sum + at);
    }
  }
}

// The largest score of every row and the inverse of its sum of weights, over all blocks in order. Lanes beyond the
// batch are undefined.
void Normalisers(const ScoreBatch& batch, int64_t n_blocks, float* row_max, float* inverse) {
  const DF d;
  using V = hn::Vec<DF>;
  const int64_t stride = batch.n_padded();
  const bool has_sinks = batch.args->attention.sinks != nullptr;
  HWY_ALIGN float sinks[kBatchRows];
  for (int64_t i = 0; has_sinks && i < stride; ++i) {
    const int64_t row = batch.row(std::min(i, batch.n - 1));
    sinks[i] = batch.task.sink(row) * batch.args->noise.inverse_tau(row / batch.task.group());
  }
  for (int64_t i = 0; i < stride; i += kLanes) {
    V max = hn::Load(d, batch.max + i);
    for (int64_t b = 1; b < n_blocks; ++b) max = hn::Max(max, hn::Load(d, batch.max + b * stride + i));
    V sum = hn::Zero(d);
    if (has_sinks) {
      max = hn::Max(max, hn::Load(d, sinks + i));
      sum = Exp2NonPositive(d, hn::Sub(hn::Load(d, sinks + i), max));
    }
    for (int64_t b = 0; b < n_blocks; ++b) {
      const V shrink = Exp2NonPositive(d, hn::Sub(hn::Load(d, batch.max + b * stride + i), max));
      sum = hn::MulAdd(hn::Load(d, batch.sum + b * stride + i), shrink, sum);
    }
    hn::Store(max, d, row_max + i);
    hn::Store(hn::Div(hn::Set(d, 1.0f), sum), d, inverse + i);
  }
}

// One group of vectors of slots: all rows of the batch, in order. factor: turns a row's weights of this block into
// probabilities; nullptr when no row sees the block.
template <bool kMaxRows>
HWY_INLINE void ReduceGroup(const ScoreBatch& batch, const float* weights, const float* factor, int64_t slot) {
  const DF d;
  using V = hn::Vec<DF>;
  float* row_sums = batch.row_sums + slot;
  float* scores = batch.scores + slot;
  const bool max_heads = batch.args->heads == HeadReduce::kMax;
  const int64_t n_rows = batch.n_rows();
  V score[kGroup], acc[kGroup];
  WEIR_UNROLL
  for (int v = 0; v < kGroup; ++v) {
    score[v] = batch.first == 0 ? hn::Zero(d) : hn::Load(d, scores + v * kLanes);
    acc[v] = batch.first % n_rows == 0 ? hn::Zero(d) : hn::Load(d, row_sums + v * kLanes);
  }
  for (int64_t i = 0; i < batch.n;) {
    const int64_t end = std::min(batch.n, i + n_rows - (batch.first + i) % n_rows);
    for (int64_t r = i; factor != nullptr && r < end; ++r) {
      const V f = hn::Set(d, factor[r]);
      WEIR_UNROLL
      for (int v = 0; v < kGroup; ++v) {
        const V w = hn::Load(d, weights + r * kSlotBlock + v * kLanes);
        acc[v] = kMaxRows ? hn::Max(acc[v], hn::Mul(w, f)) : hn::MulAdd(w, f, acc[v]);
      }
    }
    i = end;
    if (!batch.ends_head(end - 1)) break;
    WEIR_UNROLL
    for (int v = 0; v < kGroup; ++v) {
      score[v] = max_heads ? hn::Max(score[v], acc[v]) : hn::Add(score[v], acc[v]);
      acc[v] = hn::Zero(d);
    }
  }
  WEIR_UNROLL
  for (int v = 0; v < kGroup; ++v) {
    hn::Store(score[v], d, scores + v * kLanes);
    hn::Store(acc[v], d, row_sums + v * kLanes);
  }
}

void ReduceBlocksSimd(const ScoreBatch& batch, int64_t first, int64_t end) {
  const DF d;
  HWY_ALIGN float row_max[kBatchRows];
  HWY_ALIGN float inverse[kBatchRows];
  HWY_ALIGN float factor[kBatchRows];
  const int64_t n_slots = batch.task.n_slots();
  const int64_t n_seen_blocks = SlotBlocks(batch.n_seen());
  end = std::min(end, SlotBlocks(n_slots));
  if (first >= end) return;
  Normalisers(batch, n_seen_blocks, row_max, inverse);
  for (int64_t block = first; block < end; ++block) {
    const bool seen = block < n_seen_blocks;
    for (int64_t i = 0; seen && i < batch.n_padded(); i += kLanes) {
      const auto max = hn::Load(d, batch.max + block * batch.n_padded() + i);
      const auto shrink = Exp2NonPositive(d, hn::Sub(max, hn::Load(d, row_max + i)));
      hn::Store(hn::Mul(shrink, hn::Load(d, inverse + i)), d, factor + i);
    }
    const int64_t slot = block * kSlotBlock;
    const float* weights = batch.weights + block * batch.n * kSlotBlock;
    for (int64_t i = 0; i < std::min(kSlotBlock, n_slots - slot); i += kGroup * kLanes) {
      if (batch.args->rows == RowReduce::kMax) {
        ReduceGroup<true>(batch, weights + i, seen ? factor : nullptr, slot + i);
      } else {
        ReduceGroup<false>(batch, weights + i, seen ? factor : nullptr, slot + i);
      }
    }
  }
}

}  // namespace
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {

HWY_EXPORT(ScoreBlocksSimd);
HWY_EXPORT(ReduceBlocksSimd);

void ScoreBlocks(const ScoreBatch& batch, int64_t first, int64_t end, float* scratch) {
  HWY_DYNAMIC_DISPATCH(ScoreBlocksSimd)(batch, first, end, scratch);
}

void ReduceBlocks(const ScoreBatch& batch, int64_t first, int64_t end) {
  HWY_DYNAMIC_DISPATCH(ReduceBlocksSimd)(batch, first, end);
}

int64_t ScoreBlocksFloats(int64_t head_dim) {
  const auto padded = [](int64_t n) { return (n + 15) / 16 * 16; };
  return padded(kBatchRows * head_dim) + padded(kMaxSlotRows * head_dim) + 2 * padded(kMaxSlotRows * head_dim / 2) +
         2 * padded(head_dim / 2) + padded(kRopeTile * head_dim);
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
