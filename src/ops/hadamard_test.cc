// SPDX-License-Identifier: Apache-2.0
#include "ops/hadamard.h"

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(Hadamard, BlocksArePowersOfTwoThatDivide) {
  EXPECT_EQ(HadamardBlock(32), 32);
  EXPECT_EQ(HadamardBlock(96), 32);
  EXPECT_EQ(HadamardBlock(128), 128);
  EXPECT_EQ(HadamardBlock(576), 64);
  EXPECT_EQ(HadamardBlock(512), kMaxHadamard);
  EXPECT_EQ(HadamardBlock(7), 1);
}

TEST(Hadamard, IsTheMatrixOfCommonBitsAndItsOwnInverse) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  for (const int64_t n : {1, 2, 20, 32, 64, 96, 128, 512}) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float& v : x) v = normal(rng);
    std::vector<float> y = x;
    ref::Hadamard(y.data(), n);
    const int64_t block = HadamardBlock(n);
    for (int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < block; ++j) {
        const bool odd = std::popcount(static_cast<uint64_t>(i % block & j)) % 2 != 0;
        sum += (odd ? -1.0 : 1.0) * x[static_cast<size_t>(i / block * block + j)];
      }
      ASSERT_NEAR(y[static_cast<size_t>(i)], sum / std::sqrt(static_cast<double>(block)), 1e-5) << n << " " << i;
    }
    ref::Hadamard(y.data(), n);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y[i], x[i], 1e-5) << n;
  }
}

}  // namespace
}  // namespace weir
