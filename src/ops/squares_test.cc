// SPDX-License-Identifier: Apache-2.0
#include "ops/squares.h"

#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

std::vector<float> Numbers(int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), 0.0f);
  return out;
}

// Two planes of 3 x 5 pixels in squares of 2: one line and one column remain.
TEST(Squares, OfPlanesAsAConvolutionReadsThem) {
  const std::vector<float> x = Numbers(2 * 3 * 5);
  std::vector<float> y(2 * 2 * 4);
  ref::Squares({x.data(), 2, 3, 5, 1, 2, 1, y.data()});
  EXPECT_EQ(y, (std::vector<float>{0, 1, 5, 6, 15, 16, 20, 21, 2, 3, 7, 8, 17, 18, 22, 23}));
}

// Rows of two numbers on a grid of 2 x 4, every 2 x 2 of them side by side.
TEST(Squares, OfRowsAsAPixelShuffleReadsThem) {
  const std::vector<float> x = Numbers(2 * 4 * 2);
  std::vector<float> y(x.size());
  ref::Squares({x.data(), 1, 2, 4, 2, 2, 1, y.data()});
  EXPECT_EQ(y, (std::vector<float>{0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15}));
}

TEST(Squares, InGroupsOfFour) {
  const std::vector<float> x = Numbers(4 * 4);
  std::vector<float> y(x.size());
  const SquaresArgs args = {x.data(), 1, 4, 4, 1, 1, 2, y.data()};
  ref::Squares(args);
  EXPECT_EQ(y, (std::vector<float>{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15}));
  EXPECT_EQ(PlaceOfSquare(args, 6).x, 2);
  EXPECT_EQ(PlaceOfSquare(args, 6).y, 1);
}

}  // namespace
}  // namespace weir
