// SPDX-License-Identifier: Apache-2.0
#include "vision/slices.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace weir {

SliceLayout LayOutSlices(int32_t width, int32_t height, const ImageTransform& t, int32_t max_slices) {
  const double w = width, h = height, area = static_cast<double>(t.size) * t.size;
  const int32_t wanted = static_cast<int32_t>(std::min<double>(std::ceil(w * h / area), max_slices));
  SliceLayout out;
  if (wanted <= 1) return out;
  const double log_ratio = std::log(w / h);
  double least = std::numeric_limits<double>::infinity();
  out.n_x = out.n_y = 1;
  for (int32_t n = wanted - 1; n <= wanted + 1; ++n) {
    if (n == 1 || n > max_slices) continue;
    for (int32_t n_y = 1; n_y <= n; ++n_y) {
      if (n % n_y != 0) continue;
      const double error = std::abs(log_ratio - std::log(static_cast<double>(n / n_y) / n_y));
      if (error < least || (error == least && n_y > out.n_y)) {
        out.n_x = n / n_y;
        out.n_y = n_y;
        least = error;
      }
    }
  }
  // The copy's sides are multiples of the cells' numbers before a cell's size is rounded.
  const auto cell = [](double side, int32_t n) { return std::max(std::nearbyint(side / n) * n, double{1} * n) / n; };
  out.slice = AreaSize(cell(w, out.n_x), cell(h, out.n_y), t);
  return out;
}

}  // namespace weir
