// SPDX-License-Identifier: Apache-2.0
// Gathers squares of a picture into rows: pixels into patches, and patches into the rows of a pixel shuffle.
//
//   y[n, p, line, c * dim ..] = x[p, n_y * side + line, (n_x * side + c) * dim ..]
//
// for square n at (n_x, n_y), line and c in [0, side). The remainder at the right and at the bottom is dropped.
#pragma once

#include <cstdint>

namespace weir {

struct SquaresArgs {
  const float* x = nullptr;  // [n_planes, height, width, dim], contiguous; not y
  int64_t n_planes = 1, height = 0, width = 0, dim = 1;
  int64_t side = 0;
  // Squares are in line order. Above 1: in groups of group x group, with groups in line order, and the squares within
  // each too. REQUIRES: then height / side and width / side are multiples of it.
  int64_t group = 1;
  float* y = nullptr;  // [n_squares(), n_planes, side, side, dim]

  int64_t n_squares() const { return height / side * (width / side); }
};

// Coordinates of square n among the squares.
struct SquarePlace {
  int64_t x = 0, y = 0;
};
SquarePlace PlaceOfSquare(const SquaresArgs& args, int64_t n);

namespace ref {
void Squares(const SquaresArgs& args);
}  // namespace ref
}  // namespace weir
