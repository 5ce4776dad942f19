// SPDX-License-Identifier: Apache-2.0
// Attention and its statistics in one pass. Check() compares it with the references together with the second pass, for
// every shape of column_scores_test.cc; this file has the tests specific to it.
#include "backend/cpu/attention_with_scores.h"

#include "backend/cpu/column_scores_testing.h"

namespace weir {
namespace {

using namespace cpu::scores;  // NOLINT: the tests' own names

// How many weights one pass over attention keeps: several panels of rows per call, one, and too many slots for it.
TEST(AttentionWithScores, OnePassUpToManySlots) {
  for (int32_t n_slots : {512, 1025, 2500, 4096, 4097}) {
    Shape shape = Chunk(150, {n_slots, n_slots - 200});
    shape.head_dim = shape.n_rot = 8;
    shape.row_begin = 70;
    shape.row_end = 141;
    Check(shape, 550);
  }
}

// Outputs equal those of attention alone, and scores match the weights that it used.
TEST(AttentionWithScores, FactorsInBf16) {
  for (Keys keys : {Keys::kPlain, Keys::kUnrotated, Keys::kRotated}) {
    Shape shape = Chunk(150, {700, 300});
    shape.keys = keys;
    shape.bf16 = true;
    shape.window = keys == Keys::kRotated ? 100 : 0;
    shape.row_begin = 70;
    shape.row_end = 141;
    Check(shape, 570, 0.04f);
  }
}

TEST(AttentionWithScores, TwoWays) {
  for (Keys keys : {Keys::kPlain, Keys::kUnrotated, Keys::kRotated}) {
    Shape shape = Chunk(150, {700, 300});
    shape.two_way = true;
    shape.keys = keys;
    shape.window = keys == Keys::kRotated ? 100 : 0;
    shape.row_begin = 70;
    shape.row_end = 141;
    Check(shape, 580);
  }
}

// Sessions in one batch get the same bytes as sessions that run alone, however many heads share a key.
TEST(AttentionWithScores, ASingleRowDoesNotDependOnItsCompany) {
  ThreadPool pool(2);
  for (int64_t n_heads : {2, 16}) {
    Shape shape = Chunk(1, {700});
    shape.n_heads = n_heads;
    shape.n_kv_heads = 1;
    shape.head_dim = shape.n_rot = 16;
    Call call(shape, 560);
    cpu::ForEachTarget([&] { ExpectSameBytes(call.RunWithAttention(pool), call.RunWithAttention(pool, true)); });
  }
}

// Both backends behind the interface.
TEST(AttentionWithScores, Backends) {
  const AttentionShape shape = {9, 3, 64, 512, 2048};
  EXPECT_EQ(MakeCpuBackend(2)->AttentionWithScoresScratchBytes(shape), cpu::AttentionWithScoresScratchBytes(shape, 2));
  EXPECT_EQ(MakeRefBackend()->AttentionWithScoresScratchBytes(shape), 0);
}

}  // namespace
}  // namespace weir
