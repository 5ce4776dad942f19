// SPDX-License-Identifier: Apache-2.0
// The CPU attention statistics against the scalar reference, on every SIMD target this machine has, with several pools.
#include "backend/cpu/column_scores.h"

#include "backend/cpu/column_scores_testing.h"

namespace weir {
namespace {

using namespace cpu::scores;  // NOLINT: the tests' own names

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
      for (DType type : kSlotTypes) {
        if (dim % InfoOf(type).block_elements != 0) continue;
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
            shape.weight = n_rows == 1 ? 0.25f : 1.0f;
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

TEST(CpuColumnScores, Sinks) {
  uint32_t seed = 290;
  for (int64_t n_rows : {1, 6, 90}) {
    for (RowReduce rows : {RowReduce::kSum, RowReduce::kMax}) {
      Shape shape = Chunk(n_rows, {700, 333});
      shape.keys = static_cast<Keys>(seed % 3);
      shape.sinks = true;
      shape.rows = rows;
      shape.window = seed % 2 == 0 ? 100 : 0;
      Check(shape, seed++);
      if (HasFailure()) return;
    }
  }
}

TEST(CpuColumnScores, TwoWays) {
  uint32_t seed = 280;
  for (Keys keys : {Keys::kPlain, Keys::kUnrotated, Keys::kRotated}) {
    for (int32_t window : {0, 100}) {
      for (int64_t n_rows : {1, 6, 90}) {
        Shape shape = Chunk(n_rows, {700, 333});
        shape.two_way = true;
        shape.keys = keys;
        shape.window = window;
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
    shape.weight = i % 2 == 0 ? 1.0f : 0.5f;
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

// The first rows of a long chunk see no slots of its later blocks: those must still be written.
TEST(CpuColumnScores, EarlyRowsOfALongChunk) {
  for (bool accumulate : {false, true}) {
    Shape shape = Chunk(700, {700, 900});
    shape.row_begin = 3;
    shape.row_end = 40;
    shape.accumulate = accumulate;
    Check(shape, 500);
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

// With scores in the thousands, F32 has an absolute error of thousandths before the exponential; a weight that
// underflows is 0.
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

// Every path: few rows and many, whole chunks and a part, windows, sinks, caps, several blocks of slots, noise that is
// a factor of each weight and noise below a temperature.
TEST(CpuColumnScores, NoiseAndTemperatures) {
  uint32_t seed = 800;
  for (const bool gumbel : {true, false}) {
    for (const int64_t n_rows : {1, 5, 50, 150}) {
      for (const bool special : {false, true}) {
        for (const bool one : {false, true}) {
          Shape shape = Chunk(n_rows, {1300, 470});
          shape.noise = {.on = true,
                         .gumbel = gumbel,
                         .seed = seed,
                         .first_row = 12'345'678'901,
                         .first_head = special ? 4 : 0,
                         .tau = one ? 1.0f : 0.5f,
                         .tau_step = one || !special ? 0.0f : 0.25f,
                         .tau_end = 2,
                         .step = 1};
          if (special) {
            shape.row_begin = n_rows / 2;
            shape.window = 300;
            shape.sinks = true;
            shape.softcap = 3;
            shape.accumulate = true;
          }
          // Logarithms of logarithms, and powers of weights.
          Check(shape, seed++, 5e-5f);
          if (HasFailure()) return;
        }
      }
    }
  }
}

// Both backends behind the interface.
TEST(CpuColumnScores, Backends) {
  const AttentionShape shape = {9, 3, 64, 512, 2048};
  EXPECT_EQ(MakeCpuBackend(2)->ColumnScoresScratchBytes(shape), cpu::ColumnScoresScratchBytes(shape, 2));
  EXPECT_EQ(MakeRefBackend()->ColumnScoresScratchBytes(shape), 0);
  // A few hundred bytes per slot, however many rows.
  EXPECT_LT(cpu::ColumnScoresScratchBytes(shape, 2), 2048 * 512);
  EXPECT_EQ(cpu::ColumnScoresScratchBytes({9, 3, 64, 1, 2048}, 2), cpu::ColumnScoresScratchBytes(shape, 2));
}

}  // namespace
}  // namespace weir
