// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/experts.h"

#include <algorithm>

namespace weir::cpu {
namespace {

// Floats worth a task on another core.
constexpr int64_t kTaskFloats = 16384;
// A task's columns begin at whole cache lines of a row that does.
constexpr int64_t kLine = 16;

}  // namespace

void GatherRows(const GatherRowsArgs& args, ThreadPool& pool) {
  const int64_t rows = std::max<int64_t>(1, kTaskFloats / std::max<int64_t>(1, args.dim));
  pool.For((args.n_rows + rows - 1) / rows, [&](int64_t task, int) {
    GatherRowsArgs part = args;
    part.rows += task * rows;
    part.y += task * rows * args.dim;
    part.n_rows = std::min(rows, args.n_rows - task * rows);
    ref::GatherRows(part);
  });
}

void ScatterAddRows(const ScatterAddRowsArgs& args, ThreadPool& pool) {
  if (args.n_rows == 0) return;
  const int64_t columns = std::max(kLine, kTaskFloats / args.n_rows / kLine * kLine);
  pool.For((args.dim + columns - 1) / columns, [&](int64_t task, int) {
    const int64_t from = task * columns, n = std::min(columns, args.dim - from);
    for (int64_t i = 0; i < args.n_rows; ++i) {
      const float weight = args.weights[i];
      const float* x = args.x + i * args.dim + from;
      float* y = args.y + args.rows[i] * args.dim + from;
      for (int64_t d = 0; d < n; ++d) y[d] += weight * x[d];
    }
  });
}

}  // namespace weir::cpu
