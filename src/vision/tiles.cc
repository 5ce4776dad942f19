// SPDX-License-Identifier: Apache-2.0
#include "vision/tiles.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace weir {
namespace {

Grid BestGrid(double width, double height, std::span<const Grid> grids) {
  Grid best = grids.front();
  double most = 0, least_wasted = std::numeric_limits<double>::infinity();
  for (const Grid& grid : grids) {
    const double scale = std::min(grid.width / width, grid.height / height);
    const double shown = std::min(std::floor(width * scale) * std::floor(height * scale), width * height);
    const double wasted = static_cast<double>(grid.width) * grid.height - shown;
    if (shown > most || (shown == most && wasted < least_wasted)) {
      most = shown;
      least_wasted = wasted;
      best = grid;
    }
  }
  return best;
}

// Rounded to 7 decimals before truncation, as in the reference.
int32_t Cut(double x) { return static_cast<int32_t>(std::round(x * 1e7) / 1e7); }

}  // namespace

TileLayout LayOutTiles(int32_t width, int32_t height, std::span<const Grid> grids, int32_t side, int32_t n_side) {
  TileLayout out;
  const double w = width, h = height;
  out.grid = BestGrid(w, h, grids);
  const double across = out.grid.width / w, down = out.grid.height / h;
  if (across < down) {
    out.width = out.grid.width;
    out.height = std::min(static_cast<int32_t>(std::ceil(h * across)), out.grid.height);
  } else {
    out.height = out.grid.height;
    out.width = std::min(static_cast<int32_t>(std::ceil(w * down)), out.grid.width);
  }
  out.left = (out.grid.width - out.width) / 2;
  out.top = (out.grid.height - out.height) / 2;
  out.n_x = out.grid.width / side * n_side;
  out.n_y = out.grid.height / side * n_side;
  if (w / h > static_cast<double>(out.n_x) / out.n_y) {
    out.y = (out.n_y - Cut(h * (out.n_x / w))) / 2;
    out.n_y -= 2 * out.y;
  } else {
    out.x = (out.n_x - Cut(w * (out.n_y / h))) / 2;
    out.n_x -= 2 * out.x;
  }
  return out;
}

}  // namespace weir
