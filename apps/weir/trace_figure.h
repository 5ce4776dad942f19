// SPDX-License-Identifier: Apache-2.0
// Heat maps as SVG or PNG, without a plotting library: what `weir trace` draws.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace weir::app {

// A picture of numbers: cells row by row, the top row first.
struct HeatMap {
  int width = 0, height = 0;
  std::vector<float> cells;  // [height, width]: 0 (nothing) to 1 (most); NaN: there is nothing to say
  HeatMap() = default;
  HeatMap(int w, int h);
  float& at(int x, int y) {
    return cells[static_cast<size_t>(y) * static_cast<size_t>(width) + static_cast<size_t>(x)];
  }
};

// One map with its axes. Values at the ends of an axis; y grows downwards when y_first < y_last and the top is y_first.
struct Panel {
  std::string title, x_label, y_label;
  double x_first = 0, x_last = 1, y_first = 0, y_last = 1;
  HeatMap map;
};

struct Figure {
  std::string title, subtitle;
  std::string legend_low, legend_high;  // what the two ends of the colours mean
  std::vector<Panel> panels;            // one below the other
};

// Both: kInternal when a map cannot be encoded.
// Readable on light and on dark pages: it follows the reader's colour scheme.
Result<std::string> FigureSvg(const Figure& figure);
// Only the maps, one below the other, one pixel per cell, without labels.
Result<std::string> FigurePng(const Figure& figure);

}  // namespace weir::app
