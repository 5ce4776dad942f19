// SPDX-License-Identifier: Apache-2.0
#include "ops/causal_conv.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(CausalConv, SeesTheRowsBeforeTheFirstInTheState) {
  // Two channels, three taps: y[r] = 1 x[r - 2] + 10 x[r - 1] + 100 x[r], twice that in the second channel.
  const float w[] = {1, 2, 10, 20, 100, 200};
  float state[] = {7, 0, 8, 0};  // rows -2 and -1
  float x[] = {1, 1, 2, 2, 3, 3, 4, 4};
  ref::CausalConv({x, w, nullptr, state, x, 4, 2, 3, false});
  const float expected[] = {7 + 80 + 100, 200, 8 + 10 + 200, 20 + 400, 1 + 20 + 300, 2 + 40 + 600, 2 + 30 + 400, 864};
  for (int i = 0; i < 8; ++i) EXPECT_FLOAT_EQ(x[i], expected[i]) << i;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(state[i], 3) << "the state holds inputs, not results";
  for (int i = 2; i < 4; ++i) EXPECT_EQ(state[i], 4);
}

TEST(CausalConv, FewerRowsThanTapsKeepTheOldestOfTheState) {
  const float w[] = {1, 1, 1, 1}, bias[] = {0.5f};
  float state[] = {1, 2, 3}, x[] = {4}, y[1];
  ref::CausalConv({x, w, bias, state, y, 1, 1, 4, true});
  EXPECT_FLOAT_EQ(y[0], 10.5f / (1 + std::exp(-10.5f)));
  EXPECT_EQ(state[0], 2);
  EXPECT_EQ(state[1], 3);
  EXPECT_EQ(state[2], 4);
}

TEST(CausalConv, OneTapHasNoState) {
  const float w[] = {3};
  float x[] = {1, 2};
  ref::CausalConv({x, w, nullptr, nullptr, x, 2, 1, 1, false});
  EXPECT_EQ(x[0], 3);
  EXPECT_EQ(x[1], 6);
}

}  // namespace
}  // namespace weir
