// SPDX-License-Identifier: Apache-2.0
#include "ops/elementwise.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

// Rows whose results can be computed by hand.
TEST(RmsNorm, DividesByTheRootMeanSquare) {
  const float x[] = {3, 4, 0, 0, 0, 0, 0, 0}, w[] = {1, 2, 3, 4};
  float y[8];
  ref::RmsNorm({x, w, y, 2, 4, 0.0f});
  EXPECT_FLOAT_EQ(y[0], 3 / 2.5f);  // mean of squares 25 / 4
  EXPECT_FLOAT_EQ(y[1], 2 * 4 / 2.5f);
  EXPECT_TRUE(std::isnan(y[4])) << "0 / 0: eps is what keeps a row of zeros finite";
  ref::RmsNorm({x, w, y, 2, 4, 6.0f});
  EXPECT_FLOAT_EQ(y[0], 3 / 3.5f);  // sqrt(25 / 4 + 6)
  EXPECT_EQ(y[4], 0.0f);
}

TEST(RmsNorm, RowsTakeTurnsWithTheWeights) {
  float x[] = {1, 1, 1, 1, 1, 1};
  const float w[] = {2, 3, 5, 7};
  ref::RmsNorm({x, w, x, 3, 2, 0.0f, 2});
  const float expected[] = {2, 3, 5, 7, 2, 3};
  for (int i = 0; i < 6; ++i) EXPECT_FLOAT_EQ(x[i], expected[i]) << i;
}

TEST(RmsNorm, WorksInPlace) {
  float x[] = {1, -1, 1, -1};
  const float w[] = {5, 6, 7, 8};
  ref::RmsNorm({x, w, x, 1, 4, 0.0f});
  EXPECT_FLOAT_EQ(x[0], 5);
  EXPECT_FLOAT_EQ(x[3], -8);
}

TEST(LayerNorm, CentresAndDividesByTheDeviation) {
  const float x[] = {1, 2, 3, 6, 5, 5, 5, 5}, w[] = {1, 1, 2, 2}, b[] = {0, 1, 0, 1};
  float y[8];
  ref::LayerNorm({x, w, b, y, 2, 4, 0.0f});  // mean 3, variance 14 / 4
  const float deviation = std::sqrt(3.5f);
  EXPECT_FLOAT_EQ(y[0], -2 / deviation);
  EXPECT_FLOAT_EQ(y[1], 1 - 1 / deviation);
  EXPECT_FLOAT_EQ(y[2], 0);
  EXPECT_FLOAT_EQ(y[3], 1 + 6 / deviation);
  EXPECT_TRUE(std::isnan(y[4])) << "0 / 0: eps is what keeps a constant row finite";
  ref::LayerNorm({x, w, b, y, 2, 4, 0.5f});
  EXPECT_FLOAT_EQ(y[0], -1);
  EXPECT_EQ(y[5], 1.0f);
}

TEST(Gelu, KnownValues) {
  const float x[] = {0, 1, -1, 2, -10, std::numeric_limits<float>::quiet_NaN()};
  float y[6];
  ref::Gelu({GeluKind::kErf, x, y, 6});
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_FLOAT_EQ(y[1], 0.8413447461f);   // Phi(1)
  EXPECT_FLOAT_EQ(y[2], -0.1586552539f);  // -Phi(-1)
  EXPECT_FLOAT_EQ(y[3], 2 * 0.9772498681f);
  EXPECT_NEAR(y[4], 0, 1e-20);
  EXPECT_TRUE(std::isnan(y[5]));
  ref::Gelu({GeluKind::kQuick, x, y, 6});
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_FLOAT_EQ(y[1], 0.8457957659f);  // 1 / (1 + exp(-1.702))
  EXPECT_FLOAT_EQ(y[2], -0.1542042341f);
  EXPECT_TRUE(std::isnan(y[5]));
  ref::Gelu({GeluKind::kTanh, x, y, 6});
  EXPECT_FLOAT_EQ(y[1], 0.8411919906f);
  EXPECT_FLOAT_EQ(y[2], -0.1588080094f);
  EXPECT_FLOAT_EQ(y[3], 1.9545976660f);
  EXPECT_TRUE(std::isnan(y[5]));
}

TEST(GeGlu, KnownValues) {
  const float gate[] = {0, 1, -1}, up[] = {5, 2, 3};
  float y[3];
  ref::GeGlu({gate, up, y, 3});
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_FLOAT_EQ(y[1], 2 * 0.8411919906f);
  EXPECT_FLOAT_EQ(y[2], -3 * 0.1588080094f);
}

TEST(SigmoidGate, KnownValues) {
  const float gate[] = {0, 100, -100}, x[] = {4, 3, 2};
  float y[3];
  ref::SigmoidGate({gate, x, y, 3});
  EXPECT_FLOAT_EQ(y[0], 2);
  EXPECT_FLOAT_EQ(y[1], 3);
  EXPECT_NEAR(y[2], 0, 1e-30);
}

TEST(Mul, MultipliesElementByElement) {
  const float x[] = {2, -3}, z[] = {5, 7};
  float y[2];
  ref::Mul({x, z, y, 2});
  EXPECT_EQ(y[0], 10);
  EXPECT_EQ(y[1], -21);
}

TEST(Mul, AShorterVectorRepeats) {
  const float x[] = {2, -3, 4, 5}, z[] = {5, 7};
  float y[4];
  ref::Mul({x, z, y, 4, 2});
  EXPECT_EQ(std::vector<float>(y, y + 4), (std::vector<float>{10, -21, 20, 35}));
}

TEST(SoftCap, KnownValues) {
  const float x[] = {0, 2, -2, 1e30f};
  float y[4];
  ref::SoftCap({2, x, y, 4});
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_FLOAT_EQ(y[1], 2 * 0.7615941560f);
  EXPECT_FLOAT_EQ(y[2], -2 * 0.7615941560f);
  EXPECT_EQ(y[3], 2.0f);
}

TEST(SumRows, OfAllRowsAndOfMore) {
  const float x[] = {1, 2, 3, 10, 20, 30};
  float y[] = {7, NAN, 7};
  ref::SumRows({x, y, 2, 3, false});
  EXPECT_EQ(y[0], 11);
  EXPECT_EQ(y[1], 22);
  ref::SumRows({x, y, 1, 3, true});
  EXPECT_EQ(y[0], 12);
  EXPECT_EQ(y[2], 36);
}

TEST(Relu, KnownValues) {
  float x[] = {0, 1.5f, -1.5f, -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), -1};
  ref::Relu({x, x, 5});
  EXPECT_EQ(x[5], -1) << "it is none of the five";
  EXPECT_EQ(x[0], 0.0f);
  EXPECT_EQ(x[1], 1.5f);
  EXPECT_EQ(x[2], 0.0f);
  EXPECT_EQ(x[3], 0.0f);
  EXPECT_TRUE(std::isnan(x[4]));
}

TEST(SwiGlu, KnownValues) {
  const float gate[] = {0, 1, -1, 100, -100, std::numeric_limits<float>::quiet_NaN()};
  const float up[] = {7, 2, 2, 3, 3, 1};
  float y[6];
  ref::SwiGlu({gate, up, y, 6});
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_FLOAT_EQ(y[1], 2 * 0.7310585786f);
  EXPECT_FLOAT_EQ(y[2], -2 * 0.2689414214f);
  EXPECT_FLOAT_EQ(y[3], 300);
  EXPECT_NEAR(y[4], 0, 1e-30);
  EXPECT_TRUE(std::isnan(y[5]));
}

TEST(ClampedSwiGlu, KnownValues) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float gate[] = {0, 1, -1, 100, -100, nan, 1};
  const float up[] = {7, 2, 2, 30, -30, 1, nan};
  float y[7];
  ref::ClampedSwiGlu({gate, up, y, 7, 2, 7});
  const auto sigmoid = [](double z) { return 1 / (1 + std::exp(-z)); };
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_NEAR(y[1], 3 * sigmoid(2), 1e-6);
  EXPECT_NEAR(y[2], -3 * sigmoid(-2), 1e-6);
  EXPECT_NEAR(y[3], 7 * 8 * sigmoid(14), 1e-5);  // both are clamped above
  EXPECT_NEAR(y[4], 0, 1e-30);                   // only `up` is clamped below
  EXPECT_TRUE(std::isnan(y[5]));
  EXPECT_TRUE(std::isnan(y[6]));
}

TEST(Clamp, BoundsBothSidesAndKeepsWhatIsNoNumber) {
  std::vector<float> x = {
      -3, -0.5f, 0, 0.5f, 3, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()};
  ref::Clamp({-1, 2, x.data(), x.data(), std::ssize(x)});
  EXPECT_EQ(std::vector<float>(x.begin(), x.end() - 1), (std::vector<float>{-1, -0.5f, 0, 0.5f, 2, 2}));
  EXPECT_TRUE(std::isnan(x.back()));
}

}  // namespace
}  // namespace weir
