// SPDX-License-Identifier: Apache-2.0
// Rotates all heads of some rows in place, each row by its own angles.
#pragma once

#include <cstdint>

#include "ops/rope.h"

namespace weir {

struct RotateArgs {
  const RopeTable* table = nullptr;            // n_rot and magnitude are used
  const float *cos = nullptr, *sin = nullptr;  // [n_rows, n_rot/2], magnitude excluded
  float* x = nullptr;                          // [n_rows, n_heads, head_dim], contiguous
  int64_t n_rows = 0, n_heads = 0, head_dim = 0;
};

namespace ref {
void Rotate(const RotateArgs& args);
}  // namespace ref
}  // namespace weir
