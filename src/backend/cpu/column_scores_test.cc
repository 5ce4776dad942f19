// The CPU attention statistics against the scalar reference, on every SIMD target this machine has, with several pools.
#include "backend/cpu/column_scores.h"

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
#define HWY_WANT_AVX3_DL
#include "backend/cpu/testing.h"
#include "ops/kv_slots.h"

namespace weir {
namespace {

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
  bool all_heads = false, accumulate = false;
  float q_size = 1, softcap = 0;
  int32_t window = 0;  // slots a row sees at most; 0: all of them

  std::string Name() const {
    std::string s = InfoOf(k_type).name + std::string(" heads ") + std::to_string(n_heads) + "/" +
                    std::to_string(n_kv_heads) + " dim " + std::to_string(head_dim) + " rot " + std::to_string(n_rot) +
                    " keys " + std::to_string(static_cast<int>(keys)) + " rows " + std::to_string(row_begin) + ".." +
                    std::to_string(row_end) + " of " + std::to_string(n_rows) + " reduce " +
                    std::to_string(static_cast<int>(rows)) + std::to_string(static_cast<int>(heads)) + " window " +
                    std::to_string(window) + " cap " + std::to_string(softcap) + (all_heads ? " all" : "") +
                    (accumulate ? " accumulate" : "") + " slots";
    for (int32_t n : n_slots) s += " " + std::to_string(n);
    return s;
  }
};

// All rows of a chunk.
Shape Chunk(int64_t n_rows, std::vector<int32_t> n_slots) {
  Shape shape;
  shape.n_rows = shape.row_end = n_rows;
  shape.n_slots = std::move(n_slots);
  return shape;
}

// A call with all its memory. Slot arrays end exactly at their last slot and start at odd addresses; the gaps between
// rows of q hold NaN; outputs and scratch are poisoned before every run and guarded behind their end.
class Call {
 public:
  Call(const Shape& shape, uint32_t seed) : shape_(shape), rng_(seed) {
    max_slots_ = *std::max_element(shape.n_slots.begin(), shape.n_slots.end());
    RopeConfig config;
    config.n_rot = shape.keys == Keys::kPlain ? 0 : shape.n_rot;
    config.attn_factor = 1.05;
    rope_ = RopeTable::Make(config, max_slots_).value();
    const int64_t n_all = kFirstRow + shape.n_rows;
    q_.assign(n_all * QStride(), NAN);
    for (int64_t r = kFirstRow; r < n_all; ++r) {
      for (int64_t i = 0; i < shape.n_heads * shape.head_dim; ++i) q_[r * QStride() + i] = Normal() * shape.q_size;
    }
    for (int32_t n : shape.n_slots) k_.push_back(Slots(n));
    for (const auto& bytes : k_) k_ptrs_.push_back(bytes.data() + 1);
    for (int32_t n : shape.n_slots) v_.push_back(Slots(n));  // for AttentionWithScores() alone
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

  // The scores of AttentionWithScores(), whose outputs must be those of Attention() to the bit.
  Out RunWithAttention(ThreadPool& pool) {
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
    cpu::AttentionWithScores(args.attention, {&args, 1}, pool);
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
    args.attention.q = q_.data();
    args.attention.q_stride = QStride();
    args.attention.k_type = shape_.k_type;
    args.attention.rope = shape_.keys == Keys::kPlain ? nullptr : &rope_;
    args.attention.keys_rotated = shape_.keys == Keys::kRotated;
    args.attention.row_cos = cos_.data();
    args.attention.row_sin = sin_.data();
    args.attention.segments = {&segment_, 1};
    args.row_begin = shape_.row_begin;
    args.row_end = shape_.row_end;
    args.rows = shape_.rows;
    args.heads = shape_.heads;
    args.all_heads = shape_.all_heads;
    args.accumulate = shape_.accumulate;
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
  std::vector<float> q_, cos_, sin_;
  std::vector<std::vector<uint8_t>> k_, v_;
  std::vector<const uint8_t*> k_ptrs_, v_ptrs_;
  std::vector<std::vector<int32_t>> first_slots_;
  std::vector<const int32_t*> first_ptrs_;
  AttentionSegment segment_;
  Out old_;
};

// Relative to every single score: small ones rank slots too.
void ExpectNear(const Call::Out& got, const Call::Out& expected, float tolerance) {
  for (size_t h = 0; h < got.size(); ++h) {
    for (size_t s = 0; s < got[h].size(); ++s) {
      ASSERT_EQ(std::isnan(got[h][s]), std::isnan(expected[h][s])) << "head " << h << " slot " << s;
      if (std::isnan(expected[h][s])) continue;
      ASSERT_NEAR(got[h][s], expected[h][s], tolerance * expected[h][s] + 1e-12f) << "head " << h << " slot " << s;
    }
  }
}

void ExpectSameBytes(const Call::Out& a, const Call::Out& b) {
  for (size_t h = 0; h < a.size(); ++h) {
    EXPECT_EQ(std::memcmp(a[h].data(), b[h].data(), a[h].size() * sizeof(float)), 0) << "head " << h;
  }
}

// Every target against the reference; one, two and three threads against each other.
void Check(const Shape& shape, uint32_t seed, float tolerance = 1e-5f) {
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

// Rounding differs between the widest and the plainest target: equal bytes would mean that one target runs many times.
TEST(CpuColumnScores, TargetsAreReallyForced) {
  Call call(Chunk(20, {300, 200}), 1);
  ThreadPool pool(1);
  std::vector<Call::Out> outs;
  cpu::ForEachTarget([&] { outs.push_back(call.Run(pool)); });
  if (outs.size() == 1) GTEST_SKIP() << "this machine has one SIMD target only";
  EXPECT_NE(std::memcmp(outs.front()[0].data(), outs.back()[0].data(), 300 * sizeof(float)), 0);
}

TEST(CpuColumnScores, EveryHeadSizeFormAndType) {
  uint32_t seed = 1;
  for (int64_t dim : {8, 64, 80, 128, 256}) {
    for (Keys keys : {Keys::kPlain, Keys::kUnrotated, Keys::kRotated}) {
      for (DType type : {DType::kF32, DType::kF16, DType::kQ8_0}) {
        if (type == DType::kQ8_0 && dim % 32 != 0) continue;
        for (int64_t n_rows : {1, 21}) {
          Shape shape = Chunk(n_rows, {67, 130});
          shape.head_dim = dim;
          shape.n_rot = static_cast<int>(seed % 2 ? dim : dim / 4);
          shape.keys = keys;
          shape.k_type = type;
          Check(shape, seed++);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(CpuColumnScores, EveryReduction) {
  uint32_t seed = 100;
  for (RowReduce rows : {RowReduce::kSum, RowReduce::kMax}) {
    for (HeadReduce heads : {HeadReduce::kMean, HeadReduce::kMax, HeadReduce::kSum}) {
      for (bool all_heads : {false, true}) {
        for (bool accumulate : {false, true}) {
          for (int64_t n_rows : {1, 50}) {
            Shape shape = Chunk(n_rows, {333, 333});
            shape.n_heads = 6;
            shape.head_dim = 16;
            shape.n_rot = 16;
            shape.rows = rows;
            shape.heads = heads;
            shape.all_heads = all_heads;
            shape.accumulate = accumulate;
            Check(shape, seed++);
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

// Rows of one head in one batch, in several, and several heads in one batch; ends of rows inside and at ends of
// batches.
TEST(CpuColumnScores, OneToThreeHundredRows) {
  uint32_t seed = 200;
  for (int64_t n_rows : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 21, 22, 31, 32, 33, 43, 63, 64, 65, 128, 129, 300}) {
    Shape shape = Chunk(n_rows, {static_cast<int32_t>(n_rows), static_cast<int32_t>(n_rows + 290)});
    shape.n_heads = 6;
    shape.head_dim = 16;
    shape.n_rot = 16;
    Check(shape, seed++);
    shape.rows = RowReduce::kMax;
    Check(shape, seed++);
    if (HasFailure()) return;
  }
}

TEST(CpuColumnScores, EveryWindowAndCap) {
  uint32_t seed = 250;
  for (int32_t window : {0, 1, 31, 100, 256, 700}) {
    for (float softcap : {0.0f, 1.5f}) {
      for (int64_t n_rows : {1, 6, 90}) {
        Shape shape = Chunk(n_rows, {700, 333});
        shape.keys = static_cast<Keys>(seed % 3);
        shape.window = window;
        shape.softcap = softcap;
        shape.q_size = 2;
        Check(shape, seed++);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(CpuColumnScores, RandomShapes) {
  std::mt19937 rng(7);
  const auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(rng); };
  for (uint32_t i = 0; i < 60; ++i) {
    Shape shape;
    shape.n_kv_heads = pick(1, 4);
    shape.n_heads = shape.n_kv_heads * pick(1, 9);
    shape.head_dim = 8 * pick(1, 12);
    shape.n_rot = static_cast<int>(2 * pick(1, shape.head_dim / 2));
    shape.keys = static_cast<Keys>(pick(0, 2));
    shape.k_type = shape.head_dim % 32 == 0 && pick(0, 1) ? DType::kQ8_0 : pick(0, 1) ? DType::kF16 : DType::kF32;
    shape.n_rows = pick(0, 2) ? pick(1, 60) : pick(1, 2);
    shape.row_begin = pick(0, shape.n_rows - 1);
    shape.row_end = pick(shape.row_begin + 1, shape.n_rows);
    shape.rows = static_cast<RowReduce>(pick(0, 1));
    shape.heads = static_cast<HeadReduce>(pick(0, 2));
    shape.all_heads = pick(0, 2) == 0;
    shape.accumulate = pick(0, 1);
    shape.n_slots.clear();
    for (int64_t h = 0; h < shape.n_kv_heads; ++h) {
      const int64_t n = shape.n_rows + (pick(0, 1) ? pick(0, 10) : pick(0, 700));
      shape.n_slots.push_back(shape.all_heads && h > 0 ? shape.n_slots[0] : static_cast<int32_t>(n));
    }
    Check(shape, 300 + i);
    if (HasFailure()) return;
  }
}

// More blocks than tasks, and more KV heads than a batch has rows.
TEST(CpuColumnScores, DeepAndWide) {
  Shape deep = Chunk(3, {40000});
  deep.n_heads = 2;
  deep.n_kv_heads = 1;
  deep.head_dim = 16;
  deep.n_rot = 16;
  Check(deep, 400);
  Shape wide = Chunk(1, std::vector<int32_t>(70, 300));
  wide.n_heads = 140;
  wide.n_kv_heads = 70;
  wide.head_dim = 8;
  wide.n_rot = 8;
  Check(wide, 401);
  wide.all_heads = true;
  Check(wide, 402);
}

// The first rows of a long chunk see nothing of its later blocks: those must be written all the same.
TEST(CpuColumnScores, EarlyRowsOfALongChunk) {
  for (bool accumulate : {false, true}) {
    Shape shape = Chunk(700, {700, 900});
    shape.row_begin = 3;
    shape.row_end = 40;
    shape.accumulate = accumulate;
    Check(shape, 500);
  }
}

// What one pass over attention keeps of its weights: several panels of rows a call, one, and too many slots for it.
TEST(CpuColumnScores, OnePassUpToManySlots) {
  for (int32_t n_slots : {512, 1025, 2500, 4096, 4097}) {
    Shape shape = Chunk(150, {n_slots, n_slots - 200});
    shape.head_dim = shape.n_rot = 8;
    shape.row_begin = 70;
    shape.row_end = 141;
    Check(shape, 550);
  }
}

// Every row adds one to the sums of its head.
TEST(CpuColumnScores, SumsToTheRows) {
  ThreadPool pool(2);
  for (int64_t n_rows : {1, 64, 300}) {
    Call call(Chunk(n_rows, {1000, 700}), 600);
    for (const std::vector<float>& scores : call.Run(pool)) {
      double sum = 0;
      for (float x : scores) sum += std::isnan(x) ? 0 : x;
      EXPECT_NEAR(sum, static_cast<double>(n_rows), 1e-5 * n_rows);
    }
  }
}

// Scores of thousands leave F32 an absolute error of thousandths before the exponential; a weight that underflows is 0.
TEST(CpuColumnScores, VeryLargeScores) {
  ThreadPool pool(2);
  for (int64_t n_rows : {1, 30}) {
    Shape shape = Chunk(n_rows, {400, 333});
    shape.k_type = DType::kF32;
    shape.q_size = 2000;
    Call call(shape, 700);
    const Call::Out expected = call.Reference();
    cpu::ForEachTarget([&] {
      const Call::Out out = call.Run(pool);
      for (size_t h = 0; h < out.size(); ++h) {
        for (int32_t s = 0; s < shape.n_slots[h]; ++s) ASSERT_NEAR(out[h][s], expected[h][s], 2e-2f) << h << " " << s;
      }
    });
  }
}

// Both backends behind the interface.
TEST(CpuColumnScores, Backends) {
  const AttentionShape shape = {9, 3, 64, 512, 2048};
  EXPECT_EQ(MakeCpuBackend(2)->ColumnScoresScratchBytes(shape), cpu::ColumnScoresScratchBytes(shape, 2));
  EXPECT_EQ(MakeRefBackend()->ColumnScoresScratchBytes(shape), 0);
  EXPECT_EQ(MakeCpuBackend(2)->AttentionWithScoresScratchBytes(shape), cpu::AttentionWithScoresScratchBytes(shape, 2));
  EXPECT_EQ(MakeRefBackend()->AttentionWithScoresScratchBytes(shape), 0);
  // A few hundred bytes a slot, however many rows.
  EXPECT_LT(cpu::ColumnScoresScratchBytes(shape, 2), 2048 * 512);
  EXPECT_EQ(cpu::ColumnScoresScratchBytes({9, 3, 64, 1, 2048}, 2), cpu::ColumnScoresScratchBytes(shape, 2));
}

}  // namespace
}  // namespace weir
