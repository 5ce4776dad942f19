// SPDX-License-Identifier: Apache-2.0
#include "ops/xielu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace weir {
namespace {

TEST(Xielu, IsWhatThePaperDefines) {
  const XieluFactors factors = {.up = 0.8f, .down = 1.3f, .slope = 0.5f, .least = -1e-6f};
  const std::vector<float> x = {-100, -3, -0.25f, -1e-7f, 0, 1e-3f, 0.5f, 4};
  std::vector<float> y(x.size());
  ref::Xielu({factors, x.data(), y.data(), std::ssize(x)});
  for (size_t i = 0; i < x.size(); ++i) {
    const double v = x[i];
    const double want = v > 0 ? 0.8 * v * v + 0.5 * v : 1.3 * (std::expm1(std::min(v, -1e-6)) - v) + 0.5 * v;
    EXPECT_NEAR(y[i], want, 1e-6 * (1 + std::abs(want))) << v;
  }
  EXPECT_NEAR(y[4], -1.3e-6, 1e-9);  // not quite continuous, as published
}

TEST(Xielu, InPlaceAndNotANumber) {
  std::vector<float> x = {1, std::numeric_limits<float>::quiet_NaN()};
  ref::Xielu({{.up = 2, .down = 1, .slope = 1, .least = -1e-6f}, x.data(), x.data(), 2});
  EXPECT_EQ(x[0], 3);
  EXPECT_TRUE(std::isnan(x[1]));
}

}  // namespace
}  // namespace weir
