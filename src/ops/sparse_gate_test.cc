// SPDX-License-Identifier: Apache-2.0
#include "ops/sparse_gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace weir {
namespace {

TEST(SparseGate, KeepsWhatLiesAboveTheCutoff) {
  // Mean 2, deviation 2; the second row is the first one, moved and stretched.
  const std::vector<float> x = {0, 0, 4, 4, 2, 2, 5, -1, 10, 10, 18, 18, 14, 14, 20, 8};
  std::vector<float> y(x.size());
  double squares = 0;
  for (int i = 0; i < 8; ++i) squares += (x[i] - 2.0) * (x[i] - 2.0);
  const double deviation = std::sqrt(squares / 8);
  ref::SparseGate({x.data(), y.data(), 2, 8, 0.5f});
  for (int i = 0; i < 8; ++i) {
    const double expected = std::max(0.0, x[i] - (2.0 + 0.5 * deviation));
    EXPECT_NEAR(y[i], expected, 1e-6) << i;
    EXPECT_NEAR(y[i + 8], 2 * expected, 1e-5) << i;
  }
  EXPECT_EQ(y[0], 0);
  EXPECT_GT(y[6], y[2]);
}

// The share that a normal distribution has above 1.6449 deviations.
TEST(SparseGate, ATwentiethOfNormalNumbersRemains) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(3, 5);
  std::vector<float> x(20000);
  for (float& v : x) v = normal(random);
  ref::SparseGate({x.data(), x.data(), 1, 20000, 1.6448534f});
  const auto n = std::count_if(x.begin(), x.end(), [](float v) { return v > 0; });
  EXPECT_NEAR(static_cast<double>(n), 1000, 100);
}

TEST(SparseGate, WhatIsNotANumberStaysVisible) {
  std::vector<float> x = {1, std::numeric_limits<float>::quiet_NaN(), 3};
  ref::SparseGate({x.data(), x.data(), 1, 3, 1});
  for (const float v : x) EXPECT_TRUE(std::isnan(v));
}

}  // namespace
}  // namespace weir
