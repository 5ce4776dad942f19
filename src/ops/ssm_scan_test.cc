// SPDX-License-Identifier: Apache-2.0
#include "ops/ssm_scan.h"

#include <cmath>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(SsmScan, AddsDecaysAndReads) {
  // One head of two columns, a state of two: a step of log(2), so that a = -1 halves what is kept.
  const float x[] = {1, 2, 0, 0}, b[] = {1, 0, 0, 1}, c[] = {1, 1, 1, 0}, dt[] = {0, 0}, zero[] = {0}, a[] = {-1};
  const float d[] = {10};
  float state[] = {4, 0, 0, 0}, out[4], scratch[4];
  ref::SsmScan({.x = x,
                .b = b,
                .c = c,
                .dt = dt,
                .dt_bias = zero,
                .a = a,
                .d = d,
                .state = state,
                .out = out,
                .scratch = scratch,
                .n_rows = 2,
                .n_groups = 1,
                .n_heads = 1,
                .d_state = 2,
                .d_head = 2});
  const float t = std::log(2.0f);
  EXPECT_FLOAT_EQ(out[0], 2 + t + 10);
  EXPECT_FLOAT_EQ(out[1], 2 * t + 20);
  EXPECT_FLOAT_EQ(out[2], (2 + t) / 2);
  EXPECT_FLOAT_EQ(out[3], t);
  EXPECT_FLOAT_EQ(state[0], (2 + t) / 2);
  EXPECT_FLOAT_EQ(state[2], 0);
}

TEST(SsmScan, NeighbouringHeadsShareAGroup) {
  const float x[] = {1, 1, 1, 1}, b[] = {1, 100}, c[] = {1, 1}, zero[] = {0, 0, 0, 0}, large[] = {40, 40, 40, 40};
  float state[4] = {}, out[4], scratch[8];
  ref::SsmScan({.x = x,
                .b = b,
                .c = c,
                .dt = zero,
                .dt_bias = large,
                .a = zero,
                .d = zero,
                .state = state,
                .out = out,
                .scratch = scratch,
                .n_rows = 1,
                .n_groups = 2,
                .n_heads = 4,
                .d_state = 1,
                .d_head = 1});
  for (int h = 0; h < 4; ++h) EXPECT_FLOAT_EQ(out[h], h < 2 ? 40.0f : 4000.0f) << h;
}

}  // namespace
}  // namespace weir
