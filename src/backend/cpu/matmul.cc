// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/matmul.h"

#include <algorithm>

#include "backend/cpu/pack.h"

namespace weir::cpu {
namespace {

bool AnyBlocked(const MatMulArgs& args) {
  return std::any_of(args.outs.begin(), args.outs.end(), [](const MatMulOut& out) { return IsBlocked(out.w->type()); });
}

bool IsHalf(DType type) { return type == DType::kF16 || type == DType::kBF16; }

bool RoundsHalfs(const MatMulArgs& args) {
  return args.rounds_halfs && args.n_rows >= kHalfsRows && HalfsPay() &&
         std::any_of(args.outs.begin(), args.outs.end(), [](const MatMulOut& out) { return IsHalf(out.w->type()); });
}

// round(r) for every row, some of n_in numbers a task.
template <typename Round>
void ForRows(int64_t n_rows, int64_t n_in, ThreadPool& pool, const Round& round) {
  const int64_t rows_per_task = std::max<int64_t>(1, (int64_t{1} << 15) / std::max<int64_t>(1, n_in));
  pool.For((n_rows + rows_per_task - 1) / rows_per_task, [&](int64_t task, int) {
    const int64_t last = std::min(n_rows, (task + 1) * rows_per_task);
    for (int64_t r = task * rows_per_task; r < last; ++r) round(r);
  });
}

// Every task rounds its weights anew: as few tasks as can be, of nearly as many rows each.
int64_t HalfsTaskRows(int64_t n_rows) {
  constexpr int64_t kTile = 12;
  const int64_t n_tasks = (n_rows + kHalfsTaskRows - 1) / kHalfsTaskRows;
  return ((n_rows + n_tasks - 1) / n_tasks + kTile - 1) / kTile * kTile;
}

}  // namespace

void RoundRows(const float* x, int64_t x_stride, int64_t n_rows, int64_t n_in, ActBlock* act, ThreadPool& pool) {
  const int64_t n_blocks = n_in / kQ8Block;
  ForRows(n_rows, n_in, pool, [&](int64_t r) { RoundActivations(x + r * x_stride, n_blocks, act + r * n_blocks); });
}

int64_t MatMulScratchBytes(int64_t n_rows, int64_t n_in) {
  return n_rows * ((n_in + kQ8Block - 1) / kQ8Block) * static_cast<int64_t>(sizeof(ActBlock));
}

int64_t RoundedMatMulScratchBytes(int64_t n_rows, int64_t n_in) {
  return MatMulScratchBytes(n_rows, n_in) + n_rows * HalfsBlocks(n_in) * static_cast<int64_t>(sizeof(HalfsBlock));
}

void MatMul(const MatMulArgs& args, ThreadPool& pool) {
  if (args.n_rows == 0) return;
  auto* act = static_cast<ActBlock*>(args.scratch);
  if (AnyBlocked(args)) RoundRows(args.x, args.x_stride, args.n_rows, args.n_in, act, pool);
  HalfsBlock* halfs = nullptr;
  if (RoundsHalfs(args)) {
    halfs =
        reinterpret_cast<HalfsBlock*>(static_cast<uint8_t*>(args.scratch) + MatMulScratchBytes(args.n_rows, args.n_in));
    ForRows(args.n_rows, args.n_in, pool,
            [&](int64_t r) { RoundHalfs(args.x + r * args.x_stride, args.n_in, halfs + r * HalfsBlocks(args.n_in)); });
  }
  int64_t all_panels = 0;
  for (const MatMulOut& out : args.outs) all_panels += static_cast<const PackedMatrix*>(out.w)->n_panels();
  const int64_t task_rows = halfs != nullptr ? HalfsTaskRows(args.n_rows) : std::min(args.n_rows, kTaskRows);
  const int64_t n_row_tasks = (args.n_rows + task_rows - 1) / task_rows;
  // Some tasks per thread, so that a late thread does not delay the call; not so small that dispatch dominates. A
  // multiple of 4 panels keeps the widest register tile of every row count busy. With few rows a task is a piece of a
  // stream of weights, which had better be long.
  const int64_t tasks_per_thread = args.n_rows < 16 ? 4 : 16;
  const int64_t by_threads = all_panels * n_row_tasks / (tasks_per_thread * pool.n_threads());
  const int64_t by_work = kTaskWork / std::max<int64_t>(1, task_rows * args.n_in * kPanel);
  const int64_t task_panels = (std::clamp(std::max(by_threads, by_work), int64_t{1}, kMaxTaskPanels) + 3) / 4 * 4;
  int64_t n_panel_tasks = 0;
  for (const MatMulOut& out : args.outs) {
    n_panel_tasks += (static_cast<const PackedMatrix*>(out.w)->n_panels() + task_panels - 1) / task_panels;
  }
  // Row tasks outermost: all panels are multiplied with one block of activations before the next begins.
  pool.For(n_row_tasks * n_panel_tasks, [&](int64_t task, int) {
    const int64_t row = task / n_panel_tasks * task_rows;
    int64_t of_out = task % n_panel_tasks;
    const MatMulOut* out = args.outs.data();
    const PackedMatrix* w = nullptr;
    for (;; ++out) {
      w = static_cast<const PackedMatrix*>(out->w);
      const int64_t n_tasks = (w->n_panels() + task_panels - 1) / task_panels;
      if (of_out < n_tasks) break;
      of_out -= n_tasks;
    }
    const int64_t panel = of_out * task_panels;
    ProductArgs product;
    product.w = w;
    product.first_panel = panel;
    product.n_panels = std::min(task_panels, w->n_panels() - panel);
    product.n_rows = std::min(task_rows, args.n_rows - row);
    if (IsBlocked(w->type())) product.act = act + row * w->n_blocks();
    if (halfs != nullptr && IsHalf(w->type())) product.halfs = halfs + row * HalfsBlocks(args.n_in);
    product.x = args.x + row * args.x_stride;
    product.x_stride = args.x_stride;
    product.y = out->y + row * out->y_stride + panel * kPanel;
    product.y_stride = out->y_stride;
    product.bias = out->bias == nullptr ? nullptr : out->bias + panel * kPanel;
    product.accumulate = out->accumulate;
    w->weights().product(product);
  });
}

void EmbedRows(const Matrix& table, const int32_t* ids, int64_t n, float* out, ThreadPool& pool) {
  const auto& w = static_cast<const PackedMatrix&>(table);
  constexpr int64_t kRows = 8;
  pool.For((n + kRows - 1) / kRows, [&](int64_t task, int) {
    for (int64_t i = task * kRows; i < std::min(n, (task + 1) * kRows); ++i) w.DecodeRow(ids[i], out + i * w.n_in());
  });
}

}  // namespace weir::cpu
