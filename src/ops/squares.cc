// SPDX-License-Identifier: Apache-2.0
#include "ops/squares.h"

#include <cstring>

namespace weir {

SquarePlace PlaceOfSquare(const SquaresArgs& args, int64_t n) {
  const int64_t in_group = args.group * args.group, groups_a_line = args.width / args.side / args.group;
  const int64_t group = n / in_group, in = n % in_group;
  return {group % groups_a_line * args.group + in % args.group, group / groups_a_line * args.group + in / args.group};
}

namespace ref {

void Squares(const SquaresArgs& args) {
  const int64_t run = args.side * args.dim, n_squares = args.n_squares();
  float* to = args.y;
  for (int64_t n = 0; n < n_squares; ++n) {
    const SquarePlace at = PlaceOfSquare(args, n);
    for (int64_t plane = 0; plane < args.n_planes; ++plane) {
      for (int64_t line = 0; line < args.side; ++line, to += run) {
        const int64_t row = plane * args.height + at.y * args.side + line;
        std::memcpy(to, args.x + (row * args.width + at.x * args.side) * args.dim, static_cast<size_t>(run) * 4);
      }
    }
  }
}

}  // namespace ref
}  // namespace weir
