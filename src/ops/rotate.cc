// SPDX-License-Identifier: Apache-2.0
#include "ops/rotate.h"

namespace weir::ref {

void Rotate(const RotateArgs& args) {
  const int64_t n_pairs = args.table->n_rot / 2;
  float* x = args.x;
  for (int64_t i = 0; i < args.n_rows; ++i) {
    for (int64_t head = 0; head < args.n_heads; ++head, x += args.head_dim) {
      RotateRows(*args.table, args.cos + i * n_pairs, args.sin + i * n_pairs, 1, args.head_dim, x);
    }
  }
}

}  // namespace weir::ref
