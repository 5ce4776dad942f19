// SPDX-License-Identifier: Apache-2.0
#include "ops/experts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

namespace weir::ref {
namespace {

// The numbers below n_all with the k largest values, in order. A later one moves up only past smaller ones, so that
// equal ones keep their order.
template <typename Value>
void PickLargest(int64_t n_all, int64_t k, const Value& value, int32_t* ids) {
  int64_t n_best = 0;
  for (int32_t i = 0; i < n_all; ++i) {
    if (n_best == k && !(value(i) > value(ids[n_best - 1]))) continue;
    int64_t at = n_best < k ? n_best++ : n_best - 1;
    for (; at > 0 && value(i) > value(ids[at - 1]); --at) ids[at] = ids[at - 1];
    ids[at] = i;
  }
}

// Moves the choices of groups that are not used below all others.
void ShutGroups(const RouteArgs& args, std::span<float> choices) {
  const int64_t size = args.n_experts / args.n_groups;
  std::array<float, kMaxRouteGroups> sums{};
  for (int64_t g = 0; g < args.n_groups; ++g) {
    const std::span<const float> own = choices.subspan(g * size, size);
    std::array<int32_t, 2> best{};
    const int64_t n_best = std::min<int64_t>(args.group_votes, size);
    PickLargest(
        size, n_best, [&](int32_t i) { return own[i]; }, best.data());
    for (int64_t i = 0; i < n_best; ++i) sums[g] += own[best[i]];
  }
  std::array<int32_t, kMaxRouteGroups> used{};
  PickLargest(
      args.n_groups, args.n_used_groups, [&](int32_t g) { return sums[g]; }, used.data());
  const std::span<const int32_t> open(used.data(), static_cast<size_t>(args.n_used_groups));
  for (int64_t g = 0; g < args.n_groups; ++g) {
    if (std::ranges::find(open, static_cast<int32_t>(g)) != open.end()) continue;
    std::ranges::fill(choices.subspan(g * size, size), -std::numeric_limits<float>::infinity());
  }
}

void RouteRow(const RouteArgs& args, const float* logits, std::span<float> choices, int32_t* ids, float* weights) {
  const bool sigmoid = args.gate == RouteGate::kSigmoid;
  const double max = sigmoid ? 0 : *std::max_element(logits, logits + args.n_experts);
  const auto raw = [&](int64_t e) {  // p, but for a softmax's divisor
    const double z = logits[e];
    return sigmoid ? 1 / (1 + std::exp(-z)) : std::exp(z - max);
  };
  double all = 1;
  if (!sigmoid) {
    all = 0;
    for (int64_t e = 0; e < args.n_experts; ++e) all += raw(e);
  }
  if (args.bias == nullptr && args.n_groups == 1) {
    PickLargest(
        args.n_experts, args.n_used, [&](int32_t e) { return logits[e]; }, ids);  // as p, without its rounding
  } else {
    for (int64_t e = 0; e < args.n_experts; ++e) {
      choices[e] = static_cast<float>(raw(e) / all) + (args.bias == nullptr ? 0 : args.bias[e]);
    }
    if (args.n_groups > 1) ShutGroups(args, choices);
    PickLargest(
        args.n_experts, args.n_used, [&](int32_t e) { return choices[e]; }, ids);
  }
  double divisor = all;
  if (args.normalise) {
    divisor = sigmoid ? 1e-20 : 0;  // all of a row's may round to 0
    for (int64_t i = 0; i < args.n_used; ++i) divisor += raw(ids[i]);
  }
  // One that is not a number may be among those that were not chosen.
  if (std::any_of(logits, logits + args.n_experts, [](float z) { return std::isnan(z); })) divisor = std::nan("");
  for (int64_t i = 0; i < args.n_used; ++i) weights[i] = static_cast<float>(args.scale * raw(ids[i]) / divisor);
}

}  // namespace

void Route(const RouteArgs& args) {
  std::vector<float> choices(static_cast<size_t>(args.n_experts));
  for (int64_t r = 0; r < args.n_rows; ++r) {
    RouteRow(args, args.logits + r * args.n_experts, choices, args.ids + r * args.n_used,
             args.weights + r * args.n_used);
  }
}

void GatherRows(const GatherRowsArgs& args) {
  for (int64_t i = 0; i < args.n_rows; ++i) {
    std::memcpy(args.y + i * args.dim, args.x + args.rows[i] * args.dim, static_cast<size_t>(args.dim) * 4);
  }
}

void ScatterAddRows(const ScatterAddRowsArgs& args) {
  for (int64_t i = 0; i < args.n_rows; ++i) {
    const float* x = args.x + i * args.dim;
    float* y = args.y + args.rows[i] * args.dim;
    for (int64_t d = 0; d < args.dim; ++d) y[d] += args.weights[i] * x[d];
  }
}

void GateRows(const GateRowsArgs& args) {
  for (int64_t r = 0; r < args.n_rows; ++r) {
    double dot = 0;
    for (int64_t k = 0; k < args.n_in; ++k) dot += static_cast<double>(args.x[r * args.n_in + k]) * args.w[k];
    const auto gate = static_cast<float>(1 / (1 + std::exp(-dot)));
    for (int64_t d = 0; d < args.dim; ++d) args.y[r * args.dim + d] *= gate;
  }
}

}  // namespace weir::ref
