// SPDX-License-Identifier: Apache-2.0
// The reference itself, against independently known answers.
#include "ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace weir {
namespace {

// One pot of F32 slots, one KV head.
struct Pot {
  std::vector<float> k, v;
  const uint8_t* k_ptr;
  const uint8_t* v_ptr;
  int32_t n_slots;

  Pot(int32_t n, int64_t dim, uint32_t seed) : k(n * dim), v(n * dim), n_slots(n) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal;
    for (float& x : k) x = normal(rng);
    for (float& x : v) x = normal(rng);
    k_ptr = reinterpret_cast<const uint8_t*>(k.data());
    v_ptr = reinterpret_cast<const uint8_t*>(v.data());
  }
  AttentionSegment Segment(int64_t n_rows) const { return {0, n_rows, &k_ptr, &v_ptr, &n_slots}; }
};

AttentionArgs Args(const AttentionSegment& segment, int64_t n_heads, int64_t dim, const float* q, float* out) {
  AttentionArgs args;
  args.n_heads = n_heads;
  args.n_kv_heads = 1;
  args.head_dim = dim;
  args.scale = 1 / std::sqrt(static_cast<float>(dim));
  args.q = q;
  args.q_stride = args.out_stride = n_heads * dim;
  args.out = out;
  args.k_type = args.v_type = DType::kF32;
  args.segments = {&segment, 1};
  return args;
}

TEST(Attention, ZeroQueryAveragesWhatItMaySee) {
  constexpr int64_t kDim = 8;
  const Pot pot(6, kDim, 1);
  const std::vector<float> q(3 * kDim, 0.0f);
  std::vector<float> out(3 * kDim, NAN);
  const AttentionSegment segment = pot.Segment(3);
  ref::Attention(Args(segment, 1, kDim, q.data(), out.data()));
  for (int row = 0; row < 3; ++row) {
    for (int64_t d = 0; d < kDim; ++d) {
      double mean = 0;
      for (int s = 0; s < 4 + row; ++s) mean += pot.v[s * kDim + d];
      EXPECT_NEAR(out[row * kDim + d], mean / (4 + row), 1e-6);
    }
  }
}

TEST(Attention, AVeryLargeScorePicksOneSlot) {
  constexpr int64_t kDim = 8;
  Pot pot(5, kDim, 2);
  std::vector<float> q(2 * kDim);
  for (int64_t d = 0; d < kDim; ++d) {
    q[d] = pot.k[2 * kDim + d] * 1e6f;
    q[kDim + d] = -pot.k[4 * kDim + d] * 1e6f;
  }
  std::fill_n(&pot.k[2 * kDim], kDim, 0.0f);
  for (int64_t d = 0; d < kDim; ++d) pot.k[2 * kDim + d] = q[d] * 1e-3f;
  std::vector<float> out(2 * kDim, NAN);
  const AttentionSegment segment = pot.Segment(1);
  ref::Attention(Args(segment, 2, kDim, q.data(), out.data()));
  for (int64_t d = 0; d < kDim; ++d) EXPECT_FLOAT_EQ(out[d], pot.v[2 * kDim + d]);
  for (float x : out) EXPECT_TRUE(std::isfinite(x));
}

TEST(Attention, OnlySelectedSlotsAreSeen) {
  constexpr int64_t kDim = 8;
  Pot pot(7, kDim, 6);
  const std::vector<int32_t> list = {0, 3, 5, 6};  // two new rows: 5 and 6
  for (int32_t unlisted : {1, 2, 4}) {
    std::fill_n(&pot.k[unlisted * kDim], kDim, NAN);
    std::fill_n(&pot.v[unlisted * kDim], kDim, NAN);
  }
  const std::vector<float> q(2 * kDim, 0.0f);
  std::vector<float> out(2 * kDim, NAN);
  AttentionSegment segment = pot.Segment(2);
  const int32_t* const lists[] = {list.data()};
  const int32_t n = 4;
  segment.selected = lists;
  segment.n_selected = &n;
  const auto expect_mean = [&](int row, std::vector<int32_t> seen) {
    for (int64_t d = 0; d < kDim; ++d) {
      double mean = 0;
      for (int32_t s : seen) mean += pot.v[s * kDim + d];
      EXPECT_NEAR(out[row * kDim + d], mean / static_cast<double>(seen.size()), 1e-6);
    }
  };
  ref::Attention(Args(segment, 1, kDim, q.data(), out.data()));
  expect_mean(0, {0, 3, 5});
  expect_mean(1, {0, 3, 5, 6});
}

// Un-rotated storage read at the slots' positions equals keys rotated by those positions, with the row's own angles.
TEST(Attention, BothFormsOfStoredKeysAgree) {
  constexpr int64_t kDim = 16, kSlots = 77, kRows = 4;
  RopeConfig config;
  config.n_rot = 12;
  config.attn_factor = 1.1;
  const Result<RopeTable> rope = RopeTable::Make(config, kSlots);
  ASSERT_TRUE(rope.ok());
  const Pot plain(kSlots, kDim, 3);
  Pot rotated = plain;
  rotated.k_ptr = reinterpret_cast<const uint8_t*>(rotated.k.data());
  std::vector<int64_t> pos(kSlots);
  for (int64_t s = 0; s < kSlots; ++s) pos[s] = s + 5;  // a shift of all positions changes nothing
  std::vector<float> cos(kSlots * 6), sin(kSlots * 6);
  RopeAngles(*rope, pos.data(), kSlots, cos.data(), sin.data());
  ref::RotateRows(*rope, cos.data(), sin.data(), kSlots, kDim, rotated.k.data());

  std::mt19937 rng(4);
  std::normal_distribution<float> normal;
  std::vector<float> q(kRows * 2 * kDim);
  for (float& x : q) x = 2 * normal(rng);
  std::vector<float> a(q.size(), NAN), b(q.size(), NAN);
  const AttentionSegment plain_segment = plain.Segment(kRows), rotated_segment = rotated.Segment(kRows);
  AttentionArgs args = Args(plain_segment, 2, kDim, q.data(), a.data());
  args.rope = &*rope;
  ref::Attention(args);
  args = Args(rotated_segment, 2, kDim, q.data(), b.data());
  args.rope = &*rope;
  args.keys_rotated = true;
  args.row_cos = &cos[(kSlots - kRows) * 6];
  args.row_sin = &sin[(kSlots - kRows) * 6];
  ref::Attention(args);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2e-6) << i;
}

TEST(Attention, AWindowHidesTheOldestSlots) {
  constexpr int64_t kDim = 8;
  const Pot pot(6, kDim, 5);
  const std::vector<float> q(3 * kDim, 0.0f);
  std::vector<float> out(3 * kDim, NAN);
  AttentionSegment segment = pot.Segment(3);
  const std::vector<int32_t> first = {1, 4, 5};
  const int32_t* const firsts[] = {first.data()};
  segment.first_slot = firsts;
  ref::Attention(Args(segment, 1, kDim, q.data(), out.data()));
  for (int row = 0; row < 3; ++row) {
    for (int64_t d = 0; d < kDim; ++d) {
      double mean = 0;
      for (int s = first[row]; s < 4 + row; ++s) mean += pot.v[s * kDim + d];
      EXPECT_NEAR(out[row * kDim + d], mean / (4 + row - first[row]), 1e-6);
    }
  }
}

// Scores 0 and a large one: capped at c, their weights are 1 and e^c.
TEST(Attention, SoftCapBoundsTheScores) {
  constexpr int64_t kDim = 8;
  Pot pot(2, kDim, 6);
  std::fill_n(pot.k.begin(), kDim, 0.0f);
  std::fill_n(pot.k.begin() + kDim, kDim, 100.0f);
  const std::vector<float> q(kDim, 50.0f);
  std::vector<float> out(kDim, NAN);
  const AttentionSegment segment = pot.Segment(1);
  AttentionArgs args = Args(segment, 1, kDim, q.data(), out.data());
  args.softcap = 2;
  ref::Attention(args);
  for (int64_t d = 0; d < kDim; ++d) {
    EXPECT_NEAR(out[d], (pot.v[d] + std::exp(2.0) * pot.v[kDim + d]) / (1 + std::exp(2.0)), 1e-6);
  }
}

// Two equal scores of 0 and a sink: weights of 1 each out of 2 + e^sink. The cap does not touch it.
TEST(Attention, ASinkTakesItsShare) {
  constexpr int64_t kDim = 8;
  Pot pot(2, kDim, 6);
  const std::vector<float> q(kDim, 0.0f);
  std::vector<float> out(kDim, NAN);
  const AttentionSegment segment = pot.Segment(1);
  AttentionArgs args = Args(segment, 1, kDim, q.data(), out.data());
  args.softcap = 0.5f;
  for (const float sink : {-2.0f, 0.0f, 3.0f, -1000.0f, 1000.0f}) {
    args.sinks = &sink;
    ref::Attention(args);
    for (int64_t d = 0; d < kDim; ++d) {
      EXPECT_NEAR(out[d], (pot.v[d] + pot.v[kDim + d]) / (2 + std::exp(static_cast<double>(sink))), 1e-6);
    }
  }
}

}  // namespace
}  // namespace weir
