// SPDX-License-Identifier: Apache-2.0
#include "ops/top_logits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

struct Top {
  std::vector<int32_t> ids;
  std::vector<float> values;
};

Top TopOf(const std::vector<float>& logits, int64_t k) {
  Top out = {std::vector<int32_t>(static_cast<size_t>(k), -1), std::vector<float>(static_cast<size_t>(k), NAN)};
  ref::TopLogits({logits.data(), std::ssize(logits), k, out.ids.data(), out.values.data(), nullptr});
  return out;
}

TEST(TopLogits, LargestFirstAndTheLowestIdOfEquals) {
  const std::vector<float> logits = {1, 7, -3, 7, 0, -0.0f, 7, 2};
  EXPECT_EQ(TopOf(logits, 1).ids, (std::vector<int32_t>{1}));
  EXPECT_EQ(TopOf(logits, 7).ids, (std::vector<int32_t>{1, 3, 6, 7, 0, 4, 5}));
  EXPECT_EQ(TopOf(logits, 8).values, (std::vector<float>{7, 7, 7, 2, 1, 0, 0, -3}));
}

TEST(TopLogits, WhatIsNoNumberComesFirst) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(TopOf({1, 5, -inf, 3, NAN}, 3).ids, (std::vector<int32_t>{2, 4, 1}));
  EXPECT_EQ(TopOf({NAN, 5, inf, 3, NAN}, 1).ids, (std::vector<int32_t>{0}));
  EXPECT_TRUE(std::isnan(TopOf({3, 5, NAN, inf}, 1).values[0]));
}

TEST(TopLogits, AsASortOfAll) {
  Rng rng(4);
  for (const int64_t n : {1, 2, 300, 5000}) {
    std::vector<float> logits(static_cast<size_t>(n));
    // Coarse, so that many are equal.
    for (float& z : logits) z = static_cast<float>(std::floor(rng.Uniform() * 64) - 32);
    std::vector<int32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    for (const int64_t k : {int64_t{1}, std::min<int64_t>(n, 40), std::min(n, kMaxTopLogits)}) {
      EXPECT_EQ(TopOf(logits, k).ids, std::vector<int32_t>(ids.begin(), ids.begin() + k)) << n << ", " << k;
    }
  }
}

}  // namespace
}  // namespace weir
