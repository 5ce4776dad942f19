// SPDX-License-Identifier: Apache-2.0
// Pictures of any resolution as tiles (LLaVA-1.6, "AnyRes"): the encoder reads the whole picture once, and squares of a
// larger copy of it.
//
// The copy is fitted into one of a few grids of squares, the one that loses the least resolution and wastes the least
// area; the rest of the grid is black. The squares' rows are arranged like the squares, without those that are all
// black, and every line ends with a separator row (the model's `image_newline`). This follows transformers'
// LlavaNextImageProcessor and pack_image_features.
#pragma once

#include <cstdint>
#include <span>

#include "vision/preprocess.h"

namespace weir {

// A grid in pixels, both sides multiples of the encoder's input.
struct Grid {
  int32_t width = 0, height = 0;
};

struct TileLayout {
  Grid grid;
  int32_t width = 0, height = 0;  // of the copy
  int32_t left = 0, top = 0;      // its position in the grid
  // The rows that are kept, in rows of the grid: [y, y + n_y) x [x, x + n_x).
  int32_t x = 0, y = 0, n_x = 0, n_y = 0;
};

// REQUIRES: grids not empty, `side` (pixels) a divisor of all of them; n_side: rows of a square along each side.
TileLayout LayOutTiles(int32_t width, int32_t height, std::span<const Grid> grids, int32_t side, int32_t n_side);

}  // namespace weir
