// SPDX-License-Identifier: Apache-2.0
#include "vision/split.h"

#include <algorithm>

namespace weir {
namespace {

int32_t NextMultiple(int32_t x, int32_t of) { return (x + of - 1) / of * of; }

}  // namespace

SplitLayout LayOutSquares(int32_t width, int32_t height, int32_t longest_side, int32_t side) {
  SplitLayout out;
  out.first = LongestSideSize(width, height, longest_side);
  // The shorter side is computed from the longer one after that was rounded up to a multiple, then rounded up itself.
  const double ratio = static_cast<double>(out.first.width) / out.first.height;
  if (out.first.width >= out.first.height) {
    out.copy.width = NextMultiple(out.first.width, side);
    out.copy.height = NextMultiple(std::max(static_cast<int32_t>(out.copy.width / ratio), 1), side);
  } else {
    out.copy.height = NextMultiple(out.first.height, side);
    out.copy.width = NextMultiple(std::max(static_cast<int32_t>(out.copy.height * ratio), 1), side);
  }
  if (out.copy.width > side || out.copy.height > side) {
    out.n_x = out.copy.width / side;
    out.n_y = out.copy.height / side;
  }
  return out;
}

int32_t MaxSquares(int32_t longest_side, int32_t side) {
  // The shorter side is made even and may thereby become the longer one.
  return NextMultiple(longest_side + longest_side % 2, side) / side;
}

}  // namespace weir
