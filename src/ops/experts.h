// SPDX-License-Identifier: Apache-2.0
// Rows and experts: the choice of a few experts for every row, and the way of rows to their experts and back.
//
// A layer with experts has E feed-forward parts. A router scores them for each row, the U best ones compute, and the
// row's result is the sum of theirs, weighted (Shazeer et al., arXiv 1701.06538, section 2.1). Choices and lists of
// rows are the host's: a prompt's rows are grouped by expert there.
#pragma once

#include <cstdint>

namespace weir {

// The n_used experts of each row with the largest choices, largest first, of equal ones the lower number first, and
// their weights:
//
//   p[e]       = exp(logits[e]) / sum_j exp(logits[j]) (kSoftmax), or 1 / (1 + exp(-logits[e])) (kSigmoid)
//   choice[e]  = p[e] + bias[e]
//   weights[i] = scale * p[ids[i]], divided by sum_i p[ids[i]] if `normalise`
//
// All of it is host memory.
//
// With several groups, which are ranges of experts, a row chooses among those of n_used_groups groups only: the ones
// whose `group_votes` largest choices have the largest sum. A row with a score that is not a number has valid,
// distinct ids; its weights are NaN.
enum class RouteGate { kSoftmax, kSigmoid };
struct RouteArgs {
  const float* logits = nullptr;  // [n_rows, n_experts]
  int64_t n_rows = 0, n_experts = 0;
  int64_t n_used = 0;  // REQUIRES: 1 <= n_used <= n_experts / n_groups * n_used_groups
  bool normalise = true;
  int32_t* ids = nullptr;    // [n_rows, n_used]
  float* weights = nullptr;  // [n_rows, n_used]
  RouteGate gate = RouteGate::kSoftmax;
  float scale = 1;
  const float* bias = nullptr;  // [n_experts] or nullptr
  // REQUIRES: n_groups divides n_experts, 1 <= n_used_groups <= n_groups <= kMaxRouteGroups.
  int64_t n_groups = 1, n_used_groups = 1;
  int32_t group_votes = 2;  // 1 or 2
};
inline constexpr int64_t kMaxRouteGroups = 64;

// y[i, :] = x[rows[i], :]
struct GatherRowsArgs {
  const float* x = nullptr;       // [any, dim], contiguous; not y
  const int32_t* rows = nullptr;  // [n_rows], host memory
  float* y = nullptr;             // [n_rows, dim]
  int64_t n_rows = 0, dim = 0;
};

// y[rows[i], :] += weights[i] * x[i, :], one i after the other: a row's sum has the order of its entries in `rows`.
struct ScatterAddRowsArgs {
  const float* x = nullptr;        // [n_rows, dim], contiguous; not y
  const int32_t* rows = nullptr;   // [n_rows], host memory; a row may be named several times
  const float* weights = nullptr;  // [n_rows], host memory
  float* y = nullptr;              // [any, dim]
  int64_t n_rows = 0, dim = 0;
};

// y[r, :] *= 1 / (1 + exp(-x[r, :] . w)): how much of a shared expert's result a row takes.
struct GateRowsArgs {
  const float* x = nullptr;  // [n_rows, n_in], contiguous; not y
  const float* w = nullptr;  // [n_in]
  float* y = nullptr;        // [n_rows, dim], contiguous
  int64_t n_rows = 0, n_in = 0, dim = 0;
};

namespace ref {
void Route(const RouteArgs& args);
void GatherRows(const GatherRowsArgs& args);
void ScatterAddRows(const ScatterAddRowsArgs& args);
void GateRows(const GateRowsArgs& args);
}  // namespace ref
}  // namespace weir
