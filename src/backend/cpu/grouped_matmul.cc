// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/grouped_matmul.h"

#include <algorithm>

#include "backend/cpu/matmul.h"
#include "backend/cpu/pack.h"

namespace weir::cpu {
namespace {

static_assert(kStackedRows % kPanel == 0);

int64_t Pieces(int64_t n, int64_t of) { return (n + of - 1) / of; }

}  // namespace

void GroupedMatMul(const GroupedMatMulArgs& args, ThreadPool& pool) {
  if (args.n_rows == 0) return;
  auto* act = static_cast<ActBlock*>(args.scratch);
  const bool blocked =
      std::any_of(args.outs.begin(), args.outs.end(), [](const StackedOut& out) { return IsBlocked(out.w->type()); });
  if (blocked) RoundRows(args.x, args.n_in, args.n_rows, args.n_in, act, pool);

  // As in MatMul(): a few tasks a thread, none of them too small, whole register tiles of panels.
  int64_t panel_rounds = 0, most_rows = 1;
  for (const RowGroup& group : args.groups) {
    for (const StackedOut& out : args.outs) panel_rounds += Pieces(group.n_rows, kTaskRows) * (out.n_out / kPanel);
    most_rows = std::max(most_rows, std::min(group.n_rows, kTaskRows));
  }
  const int64_t by_threads = panel_rounds / (4 * pool.n_threads());
  const int64_t by_work = kTaskWork / (most_rows * args.n_in * kPanel);
  const int64_t task_panels = Pieces(std::clamp(std::max(by_threads, by_work), int64_t{1}, kMaxTaskPanels), 4) * 4;
  const auto tasks_of = [&](const RowGroup& group, const StackedOut& out) {
    return Pieces(group.n_rows, kTaskRows) * Pieces(out.n_out / kPanel, task_panels);
  };
  int64_t n_tasks = 0;
  for (const RowGroup& group : args.groups) {
    for (const StackedOut& out : args.outs) n_tasks += tasks_of(group, out);
  }
  // One expert after the other, so that its weights are read while its rows are in a cache.
  pool.For(n_tasks, [&](int64_t task, int) {
    const RowGroup* group = args.groups.data();
    const StackedOut* out = args.outs.data();
    for (int64_t n; task >= (n = tasks_of(*group, *out)); task -= n) {
      if (++out != args.outs.data() + args.outs.size()) continue;
      out = args.outs.data();
      ++group;
    }
    const auto& w = static_cast<const PackedMatrix&>(*out->w);
    const int64_t n_panels = out->n_out / kPanel, panel_tasks = Pieces(n_panels, task_panels);
    const int64_t panel = task % panel_tasks * task_panels;
    const int64_t in_group = task / panel_tasks * kTaskRows, row = group->first_row + in_group;
    ProductArgs product;
    product.w = &w;
    product.first_panel = group->matrix * n_panels + panel;
    product.n_panels = std::min(task_panels, n_panels - panel);
    product.n_rows = std::min(kTaskRows, group->n_rows - in_group);
    if (IsBlocked(w.type())) product.act = act + row * w.n_blocks();
    product.x = args.x + row * args.n_in;
    product.x_stride = args.n_in;
    product.y = out->y + row * out->n_out + panel * kPanel;
    product.y_stride = out->n_out;
    product.bias = out->bias == nullptr ? nullptr : out->bias + product.first_panel * kPanel;
    w.weights().product(product);
  });
}

}  // namespace weir::cpu
