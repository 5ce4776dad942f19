// SPDX-License-Identifier: Apache-2.0
#include "ops/rotate.h"

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(Rotate, TurnsAllHeadsOfARowAlike) {
  RopeTable table;
  table.n_rot = 2;
  table.magnitude = 2;
  const float cos[] = {1, 0}, sin[] = {0, 1};
  // Two rows of two heads of three: the third element passes through.
  float x[] = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6};
  ref::Rotate({&table, cos, sin, x, 2, 2, 3});
  const float expected[] = {2, 4, 3, 8, 10, 6, -4, 2, 3, -10, 8, 6};
  for (int i = 0; i < 12; ++i) EXPECT_EQ(x[i], expected[i]) << i;
}

}  // namespace
}  // namespace weir
