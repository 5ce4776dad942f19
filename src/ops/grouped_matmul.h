// SPDX-License-Identifier: Apache-2.0
// Products of groups of rows, each with a matrix of its own out of a stack: y[r, o] = sum_k x[r, k] * w[g(r), o, k]
// (+ bias[g(r), o]). The rows of an expert are one group, so that one read of its weights serves them all.
//
// A stack is one Matrix of n_stacked * n_out rows. Numbers and rounding of activations are those of MatMul(); a row's
// bytes do not depend on the rows computed with it.
#pragma once

#include <cstdint>
#include <span>

#include "ops/matmul.h"

namespace weir {

// n_out of a stack is a multiple of it: backends keep rows in panels of this size, and none belongs to two matrices.
inline constexpr int64_t kStackedRows = 16;

struct RowGroup {
  int64_t matrix = 0;  // of the stack
  int64_t first_row = 0, n_rows = 0;
};

struct StackedOut {
  const Matrix* w = nullptr;    // [n_stacked * n_out, n_in]
  int64_t n_out = 0;            // of one matrix of the stack
  float* y = nullptr;           // [n_rows, n_out], contiguous; not x
  const float* bias = nullptr;  // [n_stacked, n_out] or nullptr
};

struct GroupedMatMulArgs {
  const float* x = nullptr;  // [n_rows, n_in], contiguous
  int64_t n_rows = 0, n_in = 0;
  std::span<const RowGroup> groups;  // in order of their rows; together all n_rows
  std::span<const StackedOut> outs;
  void* scratch = nullptr;  // Backend::MatMulScratchBytes(n_rows, n_in) bytes, 64-byte aligned
};

namespace ref {
// REQUIRES: matrices of ref::PrepareMatrix.
void GroupedMatMul(const GroupedMatMulArgs& args);
}  // namespace ref
}  // namespace weir
