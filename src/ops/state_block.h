// SPDX-License-Identifier: Apache-2.0
// How the matrix that a recurrent layer keeps for a head is stored: in blocks of columns, each of them contiguous,
// because columns are independent of each other and a block fits in a core's cache.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace weir {

// Columns of a block: [columns / width, rows, width].
constexpr int64_t StateBlockWidth(int64_t columns) {
  for (const int64_t width : {32, 16, 8}) {
    if (columns % width == 0) return width;
  }
  return columns;
}

}  // namespace weir
