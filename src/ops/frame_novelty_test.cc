// SPDX-License-Identifier: Apache-2.0
#include "ops/frame_novelty.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace weir {
namespace {

std::vector<float> Novelty(const std::vector<float>& keys, int64_t dim, const std::vector<int32_t>& places) {
  FrameNoveltyArgs args;
  args.keys = reinterpret_cast<const uint8_t*>(keys.data());
  args.type = DType::kF32;
  args.n_slots = std::ssize(places);
  args.head_dim = dim;
  const int64_t n_scratch = FrameNoveltyScratchBytes(args.n_slots, dim);
  std::vector<double> scratch(static_cast<size_t>(n_scratch / 8 + 16), 42);
  args.scratch = reinterpret_cast<uint8_t*>(scratch.data());
  std::copy(places.begin(), places.end(), FrameNoveltyPlaces(args));
  std::vector<float> out(places.size(), 42);
  args.out = out.data();
  ref::FrameNovelty(args);
  for (size_t i = static_cast<size_t>(n_scratch + 7) / 8; i < scratch.size(); ++i) {
    EXPECT_EQ(scratch[i], 42) << "beyond what was asked for";
  }
  return out;
}

constexpr int32_t kRecent = kRecentPlace;

TEST(FrameNovelty, IsTheMeanCosineToTheSamePlace) {
  // Places 0 and 7; recent keys at place 0: (1, 0) and (0, 2); at place 7: (0, 0).
  const std::vector<float> keys = {3, 0, 1, 1, 0, 5, 1, 0, 0, 2, 0, 0, -4, 0};
  const std::vector<int32_t> places = {0, 7, kNoPlace, kRecent + 0, kRecent + 0, kRecent + 7, 0};
  const std::vector<float> got = Novelty(keys, 2, places);
  const std::vector<float> want = {-0.5f, 0, 0, 0, 0, 0, 0.5f};
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << i;
}

TEST(FrameNovelty, NothingToCompareWithIsNew) {
  EXPECT_EQ(Novelty({1, 0, 1, 0, 1, 0}, 2, {3, kRecent + 2, 1}), (std::vector<float>{1, 0, 1}));
  EXPECT_EQ(Novelty({1, 0}, 2, {kNoPlace}), (std::vector<float>{0}));
  EXPECT_EQ(Novelty({}, 2, {}), (std::vector<float>{}));
  // As many places as slots: all of the scratch is used.
  EXPECT_EQ(Novelty({1, 0, 1, 0, 1, 0}, 2, {kRecent + 3, kRecent + 2, kRecent + 1}), (std::vector<float>{0, 0, 0}));
  // A repeated key has the lowest novelty, whatever its length.
  EXPECT_NEAR(Novelty({2, 2, 9, 9}, 2, {65535, kRecent + 65535})[0], -1, 1e-6);
}

// The longest keys fill the row that holds one of them; AddressSanitizer sees what goes beyond.
TEST(FrameNovelty, KeysOfTheLargestSize) {
  constexpr size_t kDim = 1024;
  std::vector<float> keys(2 * kDim);
  for (size_t i = 0; i < kDim; ++i) keys[i] = 1, keys[kDim + i] = i < kDim / 2 ? 3.0f : -1.0f;
  EXPECT_NEAR(Novelty(keys, kDim, {4, kRecent + 4})[0], -1 / std::sqrt(5.0), 1e-6);
}

}  // namespace
}  // namespace weir
