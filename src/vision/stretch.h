// SPDX-License-Identifier: Apache-2.0
// Pictures of any resolution as tiles of a grid over which the whole picture is stretched (InternVL, 2404.16821,
// section 3.3): the encoder reads the tiles, line by line, and finally the whole picture stretched to one tile.
//
// The grid is the one whose shape is nearest to the picture's; among equals the one of more tiles, as long as its area
// is below twice the picture's. This follows transformers' GotOcr2ImageProcessor.
#pragma once

#include <cstdint>

namespace weir {

// Tiles along each side.
struct TileGrid {
  int32_t n_x = 1, n_y = 1;
  int32_t n() const { return n_x * n_y; }
};

inline constexpr int32_t kMostTiles = 64;

// A grid of min_tiles to max_tiles tiles of side x side pixels. REQUIRES: all arguments above 0, min_tiles <= max_tiles
// <= kMostTiles.
TileGrid ChooseGrid(int32_t width, int32_t height, int32_t side, int32_t min_tiles, int32_t max_tiles);

}  // namespace weir
