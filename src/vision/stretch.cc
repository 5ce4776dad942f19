// SPDX-License-Identifier: Apache-2.0
#include "vision/stretch.h"

#include <cmath>
#include <limits>

namespace weir {

TileGrid ChooseGrid(int32_t width, int32_t height, int32_t side, int32_t min_tiles, int32_t max_tiles) {
  const double ratio = static_cast<double>(width) / height, area = static_cast<double>(width) * height;
  const double tile = static_cast<double>(side) * side;
  TileGrid best;
  double nearest = std::numeric_limits<double>::infinity();
  // By number of tiles, then by columns: the order in which equals meet decides between them.
  for (int32_t n = min_tiles; n <= max_tiles; ++n) {
    for (int32_t n_x = 1; n_x <= n; ++n_x) {
      if (n % n_x != 0) continue;
      const TileGrid grid = {n_x, n / n_x};
      const double distance = std::abs(ratio - static_cast<double>(grid.n_x) / grid.n_y);
      if (distance < nearest || (distance == nearest && area > 0.5 * tile * n)) {
        nearest = distance;
        best = grid;
      }
    }
  }
  return best;
}

}  // namespace weir
