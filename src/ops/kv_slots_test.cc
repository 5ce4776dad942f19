// SPDX-License-Identifier: Apache-2.0
#include "ops/kv_slots.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "quant/format.h"

namespace weir {
namespace {

std::vector<float> RandomFloats(int64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

TEST(KvSlots, StoreThenLoadWithinTheTypesError) {
  constexpr int64_t kDim = 64, kRows = 5, kStride = 71, kFirst = 3;
  const std::vector<float> x = RandomFloats(kRows * kStride, 1);
  struct Case {
    DType type;
    float tolerance;
  };
  for (const Case& c :
       {Case{DType::kF32, 0}, Case{DType::kF16, 4e-3f}, Case{DType::kQ8_0, 2e-2f}, Case{DType::kQ5_1, 0.2f},
        Case{DType::kQ5_0, 0.2f}, Case{DType::kQ4_1, 0.4f}, Case{DType::kQ4_0, 0.5f}}) {
    SCOPED_TRACE(InfoOf(c.type).name);
    const int64_t slot_bytes = SlotBytes(c.type, kDim);
    std::vector<uint8_t> slots((kFirst + kRows + 1) * slot_bytes, 0xee);
    StoreSlotsArgs args;
    args.x = x.data();
    args.x_stride = kStride;
    args.n_rows = kRows;
    args.head_dim = kDim;
    args.type = c.type;
    args.slots = slots.data();
    args.first_slot = kFirst;
    ref::StoreSlots(args);
    for (int64_t row = 0; row < kRows; ++row) {
      float y[kDim];
      ref::LoadSlot(c.type, slots.data(), kFirst + row, kDim, y);
      for (int64_t i = 0; i < kDim; ++i) ASSERT_NEAR(y[i], x[row * kStride + i], c.tolerance);
    }
    for (int64_t i = 0; i < kFirst * slot_bytes; ++i) ASSERT_EQ(slots[i], 0xee);
    for (int64_t i = (kFirst + kRows) * slot_bytes; i < std::ssize(slots); ++i) ASSERT_EQ(slots[i], 0xee);
  }
}

// One element that is much larger than the others of its block costs them their digits, unless it is spread first.
TEST(KvSlots, TypesOfFewBitsSpreadOneLargeElement) {
  constexpr int64_t kDim = 64;
  std::vector<float> x = RandomFloats(kDim, 5);
  x[9] = 30;
  for (const DType type : {DType::kQ5_1, DType::kQ5_0, DType::kQ4_1, DType::kQ4_0}) {
    SCOPED_TRACE(InfoOf(type).name);
    std::vector<uint8_t> stored(static_cast<size_t>(SlotBytes(type, kDim))), plain(stored.size());
    ref::StoreSlots(
        {.x = x.data(), .x_stride = kDim, .n_rows = 1, .head_dim = kDim, .type = type, .slots = stored.data()});
    EncodeRow(type, x.data(), kDim, plain.data());
    std::vector<float> spread(kDim), as_is(kDim);
    ref::LoadSlot(type, stored.data(), 0, kDim, spread.data());
    DecodeRow(type, plain.data(), kDim, as_is.data());
    double errors = 0, plain_errors = 0;
    for (int64_t i = 0; i < kDim; ++i) {
      errors += std::pow(spread[i] - x[i], 2);
      plain_errors += std::pow(as_is[i] - x[i], 2);
    }
    EXPECT_LT(errors, 0.5 * plain_errors);
  }
}

TEST(KvSlots, StoreRotatesLikeRotateRows) {
  constexpr int64_t kDim = 32, kRows = 4;
  RopeConfig config;
  config.n_rot = 24;
  config.attn_factor = 1.25;
  const Result<RopeTable> rope = RopeTable::Make(config, 64);
  ASSERT_TRUE(rope.ok());
  const int64_t pos[kRows] = {0, 9, 1'000'000, 33};
  std::vector<float> cos(kRows * 12), sin(kRows * 12);
  RopeAngles(*rope, pos, kRows, cos.data(), sin.data());
  std::vector<float> x = RandomFloats(kRows * kDim, 2);
  std::vector<uint8_t> slots(kRows * SlotBytes(DType::kF32, kDim));
  StoreSlotsArgs args;
  args.x = x.data();
  args.x_stride = kDim;
  args.n_rows = kRows;
  args.head_dim = kDim;
  args.type = DType::kF32;
  args.slots = slots.data();
  args.rope = &*rope;
  args.cos = cos.data();
  args.sin = sin.data();
  ref::StoreSlots(args);
  ref::RotateRows(*rope, cos.data(), sin.data(), kRows, kDim, x.data());
  EXPECT_EQ(std::memcmp(slots.data(), x.data(), slots.size()), 0);
}

TEST(KvSlots, CompactMovesKeptSlotsToTheFront) {
  std::vector<uint8_t> slots(10 * 6);
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<uint8_t>(i);
  const std::vector<uint8_t> old = slots;
  const std::vector<int32_t> keep = {0, 1, 4, 5, 9};
  ref::CompactSlots({slots.data(), 6, keep});
  for (size_t j = 0; j < keep.size(); ++j) {
    EXPECT_EQ(std::memcmp(&slots[j * 6], &old[keep[j] * 6], 6), 0) << j;
  }
  ref::CompactSlots({slots.data(), 6, {}});
  EXPECT_EQ(std::memcmp(&slots[0], &old[0], 12), 0);
}

}  // namespace
}  // namespace weir
