// SPDX-License-Identifier: Apache-2.0
// The CPU attention kernels against the scalar reference, on every SIMD target this machine has, with several pools.
#include "backend/cpu/attention.h"

#include "backend/cpu/attention_testing.h"
#include "hwy/highway.h"

namespace weir::cpu::attention {
namespace {

// Rounding differs between the widest and the plainest target (fused products, order of sums): equal bytes would mean
// that the tests below run one target many times.
TEST(CpuAttention, TargetsAreReallyForced) {
  Shape shape;
  shape.segments = {{1, {300, 200}}, {20, {300, 200}}};
  Call call(shape, 1);
  ThreadPool pool(1);
  std::vector<std::vector<float>> outs;
  ForEachTarget([&] { outs.push_back(call.Run(pool)); });
  // On Arm the levels differ only in products.
  if (hwy::SupportedAndGeneratedTargets().size() == 1) GTEST_SKIP() << "this machine has one SIMD target only";
  EXPECT_NE(std::memcmp(outs.front().data(), outs.back().data(), outs.front().size() * sizeof(float)), 0);
}

TEST(CpuAttention, EveryHeadSizeAndForm) {
  uint32_t seed = 1;
  for (int64_t dim : {16, 64, 80, 96, 128, 256}) {
    for (int n_rot : {8, static_cast<int>(dim / 4), static_cast<int>(dim)}) {
      for (Keys keys : {Keys::kPlain, Keys::kUnrotated, Keys::kRotated}) {
        Shape shape;
        shape.head_dim = dim;
        shape.n_rot = n_rot;
        shape.keys = keys;
        shape.segments = {{1, {67, 130}}, {21, {90, 21}}};
        Check(shape, seed++);
      }
    }
  }
}

TEST(CpuAttention, EveryStorageType) {
  uint32_t seed = 100;
  for (DType k_type : kSlotTypes) {
    for (DType v_type : kSlotTypes) {
      if (IsTransformed(k_type) && IsTransformed(v_type) && k_type != v_type) continue;
      Shape shape;
      shape.k_type = k_type;
      shape.v_type = v_type;
      shape.n_heads = 6;
      shape.segments = {{1, {300, 513}}, {40, {150, 97}}};
      Check(shape, seed++);
    }
  }
}

constexpr DType kTransformed[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1};

// Heads of one and of several transformed blocks, of every form.
TEST(CpuAttention, TransformedHeadsOfEverySize) {
  uint32_t seed = 150;
  for (int64_t dim : {32, 64, 96, 128, 256, 576}) {
    for (Keys keys : {Keys::kPlain, Keys::kUnrotated, Keys::kRotated}) {
      Shape shape;
      shape.head_dim = dim;
      shape.n_rot = static_cast<int>(seed % 3 ? dim : dim / 2);
      shape.n_heads = seed % 2 ? 4 : 10;
      shape.keys = keys;
      shape.k_type = shape.v_type = kTransformed[seed % 4];
      shape.window = seed % 5 == 0 ? 70 : 0;
      shape.segments = {{1, {67, 300}}, {2, {40, 2}}, {21, {90, 21}}};
      Check(shape, seed++);
    }
  }
}

// Sums of codes that are as large as they can be.
TEST(CpuAttention, TransformsExtremeCodes) {
  uint32_t seed = 180;
  for (DType type : kTransformed) {
    for (Keys keys : {Keys::kUnrotated, Keys::kRotated}) {
      for (int64_t dim : {32, 64, 96}) {
        Shape shape;
        shape.head_dim = dim;
        shape.n_rot = static_cast<int>(dim);
        shape.keys = keys;
        shape.k_type = shape.v_type = type;
        shape.extreme = true;
        shape.q_size = 0.2f;  // such keys are large: so that more than one of them counts
        shape.segments = {{1, {300, 67}}, {3, {90, 40}}};
        Check(shape, seed++);
      }
    }
  }
}

// All sizes of a group: 1 to 8 and more query heads a key, one to a few rows.
TEST(CpuAttention, EveryGroupSize) {
  uint32_t seed = 200;
  for (int64_t group = 1; group <= 9; ++group) {
    for (int64_t n_rows : {1, 2, 3}) {
      Shape shape;
      shape.n_kv_heads = 1;
      shape.n_heads = group;
      shape.head_dim = 32;
      shape.n_rot = 32;
      shape.segments = {{n_rows, {static_cast<int32_t>(256 + n_rows)}}};
      Check(shape, seed++);
    }
  }
}

// Lists of slots, dense and sparse, for few and for many rows; unlisted slots hold values that would show in the
// result.
TEST(CpuAttention, SelectedSlotsOnly) {
  static ThreadPool one(1), three(3);
  uint32_t seed = 270;
  for (double selected : {0.001, 0.02, 0.3, 0.6, 0.97, 1.0}) {
    for (Keys keys : {Keys::kPlain, Keys::kUnrotated, Keys::kRotated}) {
      for (DType type : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_0}) {
        Shape shape;
        shape.head_dim = seed % 2 ? 64 : 96;
        shape.n_rot = seed % 3 ? 64 : 24;
        shape.n_heads = seed % 5 ? 4 : 6;
        shape.keys = keys;
        shape.k_type = shape.v_type = type;
        shape.selected = selected;
        shape.segments = {{1, {1000, 1}}, {3, {700, 300}}, {1, {33, 257}}, {70, {500, 80}}};
        SCOPED_TRACE(shape.Name());
        Call call(shape, seed++);
        const std::vector<float> expected = call.Reference();
        call.Poison();
        ForEachTarget([&] {
          const std::vector<float> out = call.Run(one);
          ExpectNear(shape, out, expected);
          ExpectSameBytes(out, call.Run(three));
        });
        if (HasFailure()) return;
      }
    }
  }
}

// Windows that begin inside, at the edges of and whole tiles and blocks before the first slot that they hide.
TEST(CpuAttention, EveryWindowAndCap) {
  uint32_t seed = 250;
  for (int32_t window : {0, 1, 5, 31, 64, 100, 256, 700}) {
    for (float softcap : {0.0f, 1.5f, 50.0f}) {
      Shape shape;
      shape.head_dim = 32;
      shape.n_rot = 32;
      shape.keys = static_cast<Keys>(seed % 3);
      shape.window = window;
      shape.softcap = softcap;
      shape.q_size = softcap > 1 ? 20 : 2;
      shape.segments = {{1, {600, 130}}, {3, {1000, 257}}, {70, {700, 70}}, {200, {500, 333}}};
      Check(shape, seed++, softcap > 1 ? 1e-4f : 1e-5f);  // scores near 72 have 24 bits
      if (HasFailure()) return;
    }
  }
}

// A score without a value in every head's softmax, for both kernels.
TEST(CpuAttention, Sinks) {
  uint32_t seed = 270;
  for (int32_t window : {0, 100}) {
    for (double selected : {0.0, 0.5}) {
      for (int64_t n_heads : {4, 16}) {
        Shape shape;
        shape.sinks = true;
        shape.n_heads = n_heads;
        shape.head_dim = shape.n_rot = 32;
        shape.keys = static_cast<Keys>(seed % 3);
        shape.window = window;
        shape.selected = selected;
        shape.segments = {{1, {600, 130}}, {3, {1000, 257}}, {70, {700, 70}}, {200, {500, 333}}};
        Check(shape, seed++);
        if (HasFailure()) return;
      }
    }
  }
}

// A list of all slots gives the same bytes as no list.
TEST(CpuAttention, ListsOfAllSlotsEqualNone) {
  ThreadPool pool(2);
  for (Keys keys : {Keys::kPlain, Keys::kUnrotated, Keys::kRotated}) {
    Shape dense;
    dense.keys = keys;
    dense.segments = {{1, {1000, 300}}, {40, {150, 97}}};
    Shape listed = dense;
    listed.selected = 2;
    Call a(dense, 290), b(listed, 290);
    ForEachTarget([&] { ExpectSameBytes(a.Run(pool), b.Run(pool)); });
  }
}

TEST(CpuAttention, RandomShapes) {
  std::mt19937 rng(7);
  const auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(rng); };
  for (uint32_t i = 0; i < 40; ++i) {
    Shape shape;
    shape.n_kv_heads = pick(1, 3);
    shape.n_heads = shape.n_kv_heads * pick(1, 5);
    shape.head_dim = 8 * pick(1, 12);
    shape.n_rot = static_cast<int>(2 * pick(1, shape.head_dim / 2));
    shape.keys = static_cast<Keys>(pick(0, 2));
    const auto any_type = [&] {
      const bool blocks = shape.head_dim % 32 == 0 && pick(0, 1);
      return kSlotTypes[blocks ? pick(2, std::ssize(kSlotTypes) - 1) : pick(0, 1)];
    };
    shape.k_type = any_type();
    shape.v_type = any_type();
    for (int64_t s = pick(1, 4); s > 0; --s) {
      SegmentShape segment;
      segment.n_rows = pick(0, 1) ? 1 : pick(1, 60);
      for (int64_t h = 0; h < shape.n_kv_heads; ++h) {
        segment.n_slots.push_back(static_cast<int32_t>(segment.n_rows + (pick(0, 1) ? pick(0, 10) : pick(0, 600))));
      }
      shape.segments.push_back(segment);
    }
    shape.window = static_cast<int32_t>(pick(0, 1) * pick(1, 300));
    shape.selected = pick(0, 2) == 0 ? 0.4 : 0;
    Check(shape, 300 + i);
    if (HasFailure()) return;
  }
}

// Rows that see each other: few and many of them, alone and behind others, in every form of keys.
TEST(CpuAttention, TwoWays) {
  uint32_t seed = 350;
  for (Keys keys : {Keys::kPlain, Keys::kUnrotated, Keys::kRotated}) {
    for (int32_t window : {0, 40}) {
      for (DType type : {DType::kF32, DType::kF16, DType::kQ8_0}) {
        for (const bool bf16 : {false, true}) {
          Shape shape;
          shape.two_way = true;
          shape.keys = keys;
          shape.window = window;
          shape.k_type = shape.v_type = type;
          shape.bf16 = bf16 && type == DType::kF16;  // whose coarse numbers need no rounding
          if (shape.bf16) shape.coarse = shape.equal_scores = true;
          shape.selected = seed % 5 == 0 ? 0.5 : 0;
          shape.segments = {{1, {30, 13}}, {2, {300, 2}}, {9, {9, 200}}, {70, {150, 97}}, {200, {301, 200}}};
          Check(shape, seed++);
          if (HasFailure()) return;
        }
      }
    }
  }
}

// Ranges of more than one block, several rounds of workers, and more heads than one round takes.
TEST(CpuAttention, DeepAndWide) {
  Shape deep;
  deep.n_heads = 2;
  deep.n_kv_heads = 1;
  deep.head_dim = 16;
  deep.n_rot = 16;
  deep.segments = {{1, {20000}}};
  Check(deep, 400);
  // A segment that is divided into more ranges than the longest one, alone and as the listed part of it.
  deep.n_heads = 8;
  deep.head_dim = deep.n_rot = 8;
  deep.segments = {{1, {16384}}, {1, {16385}}};
  Check(deep, 402);
  deep.selected = 10000.0 / 17000;
  deep.segments = {{1, {17000}}};
  Check(deep, 403);
  Shape wide;
  wide.n_heads = 2;
  wide.head_dim = 8;
  wide.n_rot = 8;
  for (int i = 0; i < 150; ++i) wide.segments.push_back({1, {300 + i, 260}});
  Check(wide, 401);
}

// Factors rounded to bfloat16: one slot too many or too few among some hundreds is a larger error than their rounding.
// With values that need no rounding and equal weights, nothing is rounded.
TEST(CpuAttention, FactorsInBf16) {
  static ThreadPool one(1), three(3);
  uint32_t seed = 450;
  bool rounded = false;
  for (int64_t dim : {32, 64, 80, 96, 128, 256}) {
    for (DType type : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_0}) {
      if (dim % InfoOf(type).block_elements != 0) continue;
      if (dim > 64 && type == DType::kF32) continue;
      for (Keys keys : {Keys::kPlain, Keys::kUnrotated, Keys::kRotated}) {
        Shape shape;
        shape.bf16 = true;
        shape.head_dim = dim;
        shape.n_heads = dim == 32 ? 20 : 4;  // more heads per key than AttendSlots accepts
        shape.n_rot = static_cast<int>(dim / 2);
        shape.keys = keys;
        shape.k_type = shape.v_type = type;
        shape.window = seed % 4 == 0 ? 150 : 0;
        shape.selected = seed % 3 == 0 ? 0.5 : 0;
        shape.softcap = seed % 5 == 0 ? 20.0f : 0.0f;
        shape.segments = {{1, {300, 513}}, {70, {150, 97}}, {200, {301, 200}}, {13, {13, 400}}};
        SCOPED_TRACE(shape.Name());
        Call call(shape, seed);
        const std::vector<float> expected = call.Reference();
        shape.bf16 = false;
        Call exact(shape, seed++);
        ForEachTarget([&] {
          const std::vector<float> out = call.Run(one);
          EXPECT_LE(RelativeError(out, expected), 1.0 / 128);
          ExpectSameBytes(out, call.Run(three));
          rounded |= RelativeError(out, exact.Run(one)) > 1e-4;
        });
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_EQ(rounded, SimdLevels().back() == std::string("AVX3_DL_BF16"));
  Shape shape;
  shape.bf16 = shape.equal_scores = true;
  shape.coarse = true;
  shape.segments = {{70, {400, 333}}};
  Check(shape, 499, 2e-6f);
}

TEST(CpuAttention, VeryLargeAndEqualScores) {
  for (int64_t n_rows : {1, 30}) {
    Shape shape;
    shape.k_type = shape.v_type = DType::kF32;
    shape.segments = {{n_rows, {400, 333}}};
    shape.q_size = 2000;
    // With scores in the thousands, F32 has an absolute error of thousandths.
    Check(shape, 500, 2e-2f);
    shape.equal_scores = true;
    Check(shape, 501, 2e-6f);
  }
}

// The rows of one chunk, given in one call or one by one with the pot growing: same results within rounding.
TEST(CpuAttention, ChunkedEqualsWhole) {
  constexpr int64_t kDim = 64, kRows = 70;
  constexpr int32_t kSlots = 333;
  Shape shape;
  shape.n_kv_heads = 1;
  shape.n_heads = 3;
  shape.k_type = shape.v_type = DType::kF32;
  shape.segments = {{kRows, {kSlots}}};
  Call call(shape, 600);
  ThreadPool pool(2);
  const std::vector<float> whole = call.Run(pool);
  std::vector<float> parts(whole.size(), NAN);
  AttentionArgs args = call.Args(parts.data());
  const AttentionSegment all = args.segments[0];
  std::vector<uint8_t> memory(cpu::AttentionScratchBytes({3, 1, kDim, kRows, kSlots}, 2) + 64);
  args.scratch = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  int64_t row = 0;
  for (int64_t n : {1, 2, 30, 1, 36}) {
    AttentionSegment segment = all;
    const int32_t n_slots = static_cast<int32_t>(kSlots - kRows + row + n);
    segment.first_row = row;
    segment.n_rows = n;
    segment.n_slots = &n_slots;
    args.segments = {&segment, 1};
    cpu::Attention(args, pool);
    row += n;
  }
  ASSERT_EQ(row, kRows);
  ExpectNear(parts, whole, 1e-5f);
}

}  // namespace
}  // namespace weir::cpu::attention
