// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of attention statistics: random calls with guarded memory, and the comparison of every SIMD
// target and pool with the scalar reference. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/attention.h"
#include "backend/cpu/attention_with_scores.h"
#include "backend/cpu/column_scores.h"
#include "backend/cpu/testing.h"
#include "ops/kv_slots.h"

namespace weir::cpu::scores {

enum class Keys { kPlain, kUnrotated, kRotated };

struct Shape {
  int64_t n_heads = 4, n_kv_heads = 2, head_dim = 64;
  int n_rot = 64;
  Keys keys = Keys::kUnrotated;
  DType k_type = DType::kF16;
  int64_t n_rows = 1, row_begin = 0, row_end = 1;
  std::vector<int32_t> n_slots = {300, 130};  // one per KV head
  RowReduce rows = RowReduce::kSum;
  HeadReduce heads = HeadReduce::kMean;
  bool all_heads = false, accumulate = false, bf16 = false;
  float q_size = 1, softcap = 0, weight = 1;
  bool sinks = false;
  int32_t window = 0;  // most slots that a row sees; 0: all of them
  bool two_way = false;
  ScoreNoise noise = {};

  std::string Name() const {
    std::string s = InfoOf(k_type).name + std::string(" heads ") + std::to_string(n_heads) + "/" +
                    std::to_string(n_kv_heads) + " dim " + std::to_string(head_dim) + " rot " + std::to_string(n_rot) +
                    " keys " + std::to_string(static_cast<int>(keys)) + " rows " + std::to_string(row_begin) + ".." +
                    std::to_string(row_end) + " of " + std::to_string(n_rows) + " reduce " +
                    std::to_string(static_cast<int>(rows)) + std::to_string(static_cast<int>(heads)) + " window " +
                    std::to_string(window) + " cap " + std::to_string(softcap) + (all_heads ? " all" : "") +
                    (accumulate ? " accumulate" : "") + " weight " + std::to_string(weight) + (sinks ? " sinks" : "") +
                    (bf16 ? " bf16" : "") + (noise.on ? (noise.gumbel ? " noise" : " tau") : "") + " slots";
    for (int32_t n : n_slots) s += " " + std::to_string(n);
    return s;
  }
};

// All rows of a chunk.
inline Shape Chunk(int64_t n_rows, std::vector<int32_t> n_slots) {
  Shape shape;
  shape.n_rows = shape.row_end = n_rows;
  shape.n_slots = std::move(n_slots);
  return shape;
}

// A call with all its memory. Slot arrays end exactly at their last slot and start at odd addresses; the gaps between
// rows of q hold NaN; outputs and scratch are poisoned before every run and guarded past their end.
class Call {
 public:
  Call(const Shape& shape, uint32_t seed) : shape_(shape), rng_(seed) {
    max_slots_ = *std::max_element(shape.n_slots.begin(), shape.n_slots.end());
    RopeConfig config;
    config.n_rot = shape.keys == Keys::kPlain ? 0 : shape.n_rot;
    config.attn_factor = 1.05;
    rope_ = RopeTable::Make(config, max_slots_).value();
    const int64_t n_all = kFirstRow + shape.n_rows;
    // Some above every score, some below.
    for (int64_t h = 0; h < shape.n_heads; ++h) sinks_.push_back(static_cast<float>(h % 4) * 4 - 4);
    q_.assign(n_all * QStride(), NAN);
    for (int64_t r = kFirstRow; r < n_all; ++r) {
      for (int64_t i = 0; i < shape.n_heads * shape.head_dim; ++i) q_[r * QStride() + i] = Normal() * shape.q_size;
    }
    for (int32_t n : shape.n_slots) k_.push_back(Slots(n));
    for (const auto& bytes : k_) k_ptrs_.push_back(bytes.data() + 1);
    for (int32_t n : shape.n_slots) v_.push_back(Slots(n));  // for AttentionWithScores() only
    for (const auto& bytes : v_) v_ptrs_.push_back(bytes.data() + 1);
    segment_ = {kFirstRow, shape.n_rows, k_ptrs_.data(), v_ptrs_.data(), shape_.n_slots.data()};
    for (int32_t n : shape.n_slots) {
      first_slots_.emplace_back(shape.n_rows);
      for (int64_t i = 0; i < shape.n_rows; ++i) {
        first_slots_.back()[i] = std::max<int32_t>(0, static_cast<int32_t>(n - shape.n_rows + i + 1 - shape.window));
      }
    }
    for (const auto& first : first_slots_) first_ptrs_.push_back(first.data());
    if (shape.window > 0) segment_.first_slot = first_ptrs_.data();
    segment_.two_way = shape.two_way;
    if (shape.keys == Keys::kRotated) {
      std::vector<int64_t> pos(n_all);
      for (int64_t& p : pos) p = std::uniform_int_distribution<int64_t>(0, 1'000'000)(rng_);
      cos_.resize(n_all * rope_.n_rot / 2);
      sin_.resize(cos_.size());
      RopeAngles(rope_, pos.data(), n_all, cos_.data(), sin_.data());
    }
    for (int32_t n : shape.n_slots) {
      std::vector<float> old(n + kGuard, NAN);
      for (int32_t s = 0; shape.accumulate && s < n; ++s) old[s] = std::fabs(Normal()) * 0.1f;
      old_.push_back(old);
    }
  }

  using Out = std::vector<std::vector<float>>;

  Out Reference() {
    Out out = old_;
    std::vector<float*> ptrs;
    ref::ColumnScores(Args(out, ptrs));
    return out;
  }

  Out Run(ThreadPool& pool) {
    const AttentionShape shape = {shape_.n_heads, shape_.n_kv_heads, shape_.head_dim, shape_.n_rows, max_slots_};
    const int64_t bytes = cpu::ColumnScoresScratchBytes(shape, pool.n_threads());
    std::vector<uint8_t> memory = cpu::Scratch(bytes + 64);  // NaN everywhere
    uint8_t* scratch = static_cast<uint8_t*>(cpu::Aligned(memory));
    Out out = old_;
    std::vector<float*> ptrs;
    ColumnScoresArgs args = Args(out, ptrs);
    args.scratch = scratch;
    cpu::ColumnScores(args, pool);
    for (uint8_t* p = scratch + bytes; p < memory.data() + memory.size(); ++p) {
      EXPECT_EQ(*p, 0xff) << "wrote past the scratch";
    }
    return out;
  }

  // The scores of AttentionWithScores(), whose outputs must equal those of Attention() to the bit. `in_company`: the
  // call has another segment.
  Out RunWithAttention(ThreadPool& pool, bool in_company = false) {
    const AttentionShape shape = {shape_.n_heads, shape_.n_kv_heads, shape_.head_dim, shape_.n_rows, max_slots_};
    const int64_t bytes = cpu::AttentionWithScoresScratchBytes(shape, pool.n_threads());
    std::vector<uint8_t> memory = cpu::Scratch(bytes + 64);  // NaN everywhere
    uint8_t* scratch = static_cast<uint8_t*>(cpu::Aligned(memory));
    Out out = old_;
    std::vector<float*> ptrs;
    ColumnScoresArgs args = Args(out, ptrs);
    std::vector<float> mixed[2];
    for (std::vector<float>& m : mixed) m.assign((kFirstRow + shape_.n_rows) * QStride(), -7.0f);
    args.scratch = args.attention.scratch = scratch;
    args.attention.v_type = shape_.k_type;
    args.attention.out_stride = QStride();
    args.attention.out = mixed[0].data();
    cpu::Attention(args.attention, pool);
    std::fill(scratch, scratch + bytes, 0xff);
    args.attention.out = mixed[1].data();
    AttentionArgs batch = args.attention;
    AttentionSegment segments[2] = {segment_, segment_};
    segments[1].n_rows = 0;
    if (in_company) batch.segments = segments;
    cpu::AttentionWithScores(batch, {&args, 1}, pool);
    EXPECT_EQ(std::memcmp(mixed[0].data(), mixed[1].data(), mixed[0].size() * sizeof(float)), 0) << "outputs differ";
    for (uint8_t* p = scratch + bytes; p < memory.data() + memory.size(); ++p) {
      EXPECT_EQ(*p, 0xff) << "wrote past the scratch";
    }
    return out;
  }

 private:
  static constexpr int64_t kFirstRow = 2, kGuard = 20;

  int64_t QStride() const { return shape_.n_heads * shape_.head_dim + 3; }
  float Normal() { return std::normal_distribution<float>()(rng_); }

  ColumnScoresArgs Args(Out& out, std::vector<float*>& ptrs) {
    for (auto& o : out) ptrs.push_back(o.data());
    ColumnScoresArgs args;
    args.attention.n_heads = shape_.n_heads;
    args.attention.n_kv_heads = shape_.n_kv_heads;
    args.attention.head_dim = shape_.head_dim;
    args.attention.scale = 1 / std::sqrt(static_cast<float>(shape_.head_dim));
    args.attention.softcap = shape_.softcap;
    args.attention.sinks = shape_.sinks ? sinks_.data() : nullptr;
    args.attention.q = q_.data();
    args.attention.q_stride = QStride();
    args.attention.k_type = shape_.k_type;
    args.attention.rope = shape_.keys == Keys::kPlain ? nullptr : &rope_;
    args.attention.keys_rotated = shape_.keys == Keys::kRotated;
    args.attention.row_cos = cos_.data();
    args.attention.row_sin = sin_.data();
    args.attention.bf16 = shape_.bf16;
    args.attention.segments = {&segment_, 1};
    args.row_begin = shape_.row_begin;
    args.row_end = shape_.row_end;
    args.rows = shape_.rows;
    args.heads = shape_.heads;
    args.all_heads = shape_.all_heads;
    args.accumulate = shape_.accumulate;
    args.weight = shape_.weight;
    args.noise = shape_.noise;
    args.out = ptrs.data();
    return args;
  }

  std::vector<uint8_t> Slots(int64_t n) {
    std::vector<float> x(n * shape_.head_dim);
    for (float& v : x) v = Normal();
    std::vector<uint8_t> bytes(1 + n * SlotBytes(shape_.k_type, shape_.head_dim));
    StoreSlotsArgs args;
    args.x = x.data();
    args.x_stride = args.head_dim = shape_.head_dim;
    args.n_rows = n;
    args.type = shape_.k_type;
    args.slots = bytes.data() + 1;
    ref::StoreSlots(args);
    return bytes;
  }

  const Shape shape_;
  std::mt19937 rng_;
  int64_t max_slots_ = 0;
  RopeTable rope_;
  std::vector<float> q_, cos_, sin_, sinks_;
  std::vector<std::vector<uint8_t>> k_, v_;
  std::vector<const uint8_t*> k_ptrs_, v_ptrs_;
  std::vector<std::vector<int32_t>> first_slots_;
  std::vector<const int32_t*> first_ptrs_;
  AttentionSegment segment_;
  Out old_;
};

// Relative to each single score: small ones rank slots too.
inline void ExpectNear(const Call::Out& got, const Call::Out& expected, float tolerance) {
  for (size_t h = 0; h < got.size(); ++h) {
    for (size_t s = 0; s < got[h].size(); ++s) {
      ASSERT_EQ(std::isnan(got[h][s]), std::isnan(expected[h][s])) << "head " << h << " slot " << s;
      if (std::isnan(expected[h][s])) continue;
      ASSERT_NEAR(got[h][s], expected[h][s], tolerance * expected[h][s] + 1e-12f) << "head " << h << " slot " << s;
    }
  }
}

inline void ExpectSameBytes(const Call::Out& a, const Call::Out& b) {
  for (size_t h = 0; h < a.size(); ++h) {
    EXPECT_EQ(std::memcmp(a[h].data(), b[h].data(), a[h].size() * sizeof(float)), 0) << "head " << h;
  }
}

// Compares every target with the reference, and pools of one, two and three threads with each other. Queries may be
// rounded to 16 bits where keys are transformed (attention_words-inl.h).
inline void Check(const Shape& shape, uint32_t seed, float tolerance = 1e-5f) {
  if (IsTransformed(shape.k_type)) tolerance = std::max(tolerance, 1e-3f);
  SCOPED_TRACE(shape.Name());
  static ThreadPool one(1), two(2), three(3);
  Call call(shape, seed);
  const Call::Out expected = call.Reference();
  cpu::ForEachTarget([&] {
    const Call::Out out = call.Run(one);
    ExpectNear(out, expected, tolerance);
    ExpectSameBytes(out, call.Run(two));
    ExpectSameBytes(out, call.Run(three));
    const Call::Out with_attention = call.RunWithAttention(one);
    ExpectNear(with_attention, expected, tolerance);
    ExpectSameBytes(with_attention, call.RunWithAttention(two));
    ExpectSameBytes(with_attention, call.RunWithAttention(three));
  });
}

}  // namespace weir::cpu::scores
