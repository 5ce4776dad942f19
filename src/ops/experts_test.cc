// SPDX-License-Identifier: Apache-2.0
#include "ops/experts.h"

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

struct Routed {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

Routed RouteRow(const std::vector<float>& logits, int64_t n_used, bool normalise) {
  Routed out{std::vector<int32_t>(static_cast<size_t>(n_used), -1), std::vector<float>(static_cast<size_t>(n_used))};
  ref::Route({logits.data(), 1, std::ssize(logits), n_used, normalise, out.ids.data(), out.weights.data()});
  return out;
}

TEST(Route, TakesTheLargestAndTheFirstOfEqualOnes) {
  EXPECT_EQ(RouteRow({1, 3, 2, 3, 0}, 3, true).ids, (std::vector<int32_t>{1, 3, 2}));
  EXPECT_EQ(RouteRow({5, 5, 5, 5}, 2, true).ids, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(RouteRow({0, 1, 2}, 3, true).ids, (std::vector<int32_t>{2, 1, 0}));
  EXPECT_EQ(RouteRow({0, -300, -200}, 2, true).ids, (std::vector<int32_t>{0, 2})) << "both weights round to 0";
}

TEST(Route, WeightsAreASoftmaxOverTheUsedOrOverAll) {
  const float two = std::log(2.0f);
  // exp: 1, 2, 4, 1
  const Routed among_used = RouteRow({0, two, 2 * two, 0}, 2, true);
  EXPECT_NEAR(among_used.weights[0], 4.0 / 6, 1e-6);
  EXPECT_NEAR(among_used.weights[1], 2.0 / 6, 1e-6);
  const Routed among_all = RouteRow({0, two, 2 * two, 0}, 2, false);
  EXPECT_NEAR(among_all.weights[0], 4.0 / 8, 1e-6);
  EXPECT_NEAR(among_all.weights[1], 2.0 / 8, 1e-6);
  // Large scores do not overflow.
  EXPECT_NEAR(RouteRow({3000, 3000, -3000}, 2, false).weights[1], 0.5, 1e-6);
}

TEST(Route, ABiasChoosesButDoesNotWeigh) {
  Routed out{std::vector<int32_t>(2), std::vector<float>(2)};
  const std::vector<float> logits = {0, std::log(3.0f), -std::log(3.0f), 0}, bias = {0.5f, 0, 0.6f, 0};
  RouteArgs args = {.logits = logits.data(),
                    .n_rows = 1,
                    .n_experts = 4,
                    .n_used = 2,
                    .normalise = false,
                    .ids = out.ids.data(),
                    .weights = out.weights.data(),
                    .gate = RouteGate::kSigmoid,
                    .scale = 2,
                    .bias = bias.data()};
  ref::Route(args);  // choices 1, 0.75, 0.85, 0.5
  EXPECT_EQ(out.ids, (std::vector<int32_t>{0, 2}));
  EXPECT_NEAR(out.weights[0], 2 * 0.5, 1e-6);
  EXPECT_NEAR(out.weights[1], 2 * 0.25, 1e-6);
  args.normalise = true;
  ref::Route(args);
  EXPECT_NEAR(out.weights[0], 2 * 0.5 / 0.75, 1e-6);
  EXPECT_NEAR(out.weights[1], 2 * 0.25 / 0.75, 1e-6);
}

TEST(Route, GroupsAreChosenByTheirBestOrTheirTwoBest) {
  Routed out{std::vector<int32_t>(3), std::vector<float>(3)};
  const float p[] = {0.9f, 0.1f, 0.1f, 0.6f, 0.7f, 0.5f, 0.2f, 0.3f, 0.4f};
  std::vector<float> logits;
  for (const float x : p) logits.push_back(std::log(x / (1 - x)));
  RouteArgs args = {.logits = logits.data(),
                    .n_rows = 1,
                    .n_experts = 9,
                    .n_used = 3,
                    .ids = out.ids.data(),
                    .weights = out.weights.data(),
                    .gate = RouteGate::kSigmoid,
                    .n_groups = 3,
                    .n_used_groups = 1};
  ref::Route(args);  // sums 1.0, 1.3, 0.7
  EXPECT_EQ(out.ids, (std::vector<int32_t>{4, 3, 5}));
  args.group_votes = 1;
  ref::Route(args);
  EXPECT_EQ(out.ids, (std::vector<int32_t>{0, 1, 2}));
  args.n_used_groups = 2;
  ref::Route(args);
  EXPECT_EQ(out.ids, (std::vector<int32_t>{0, 4, 3}));
  // Groups of rows that are not numbers hold valid ids, too.
  logits.assign(9, std::numeric_limits<float>::quiet_NaN());
  ref::Route(args);
  EXPECT_EQ(std::set<int32_t>(out.ids.begin(), out.ids.end()).size(), 3u);
  for (const int32_t id : out.ids) EXPECT_TRUE(id >= 0 && id < 9);
}

TEST(Route, ScoresThatAreNoNumbersGiveValidIds) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& logits : {std::vector<float>{nan, nan, nan, nan}, {1, nan, 2, 0}, {1, 2, 3, nan}}) {
    const Routed routed = RouteRow(logits, 2, true);
    EXPECT_EQ(std::set<int32_t>(routed.ids.begin(), routed.ids.end()).size(), 2u);
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(routed.ids[i] >= 0 && routed.ids[i] < 4);
      EXPECT_TRUE(std::isnan(routed.weights[i]));
    }
  }
}

TEST(ExpertRows, GatherAndScatter) {
  const std::vector<float> x = {1, 2, 3, 4, 5, 6};
  const std::vector<int32_t> rows = {2, 0, 2};
  std::vector<float> gathered(6), y = {10, 20, 30, 40, 50, 60};
  ref::GatherRows({x.data(), rows.data(), gathered.data(), 3, 2});
  EXPECT_EQ(gathered, (std::vector<float>{5, 6, 1, 2, 5, 6}));
  const std::vector<float> weights = {0.5f, 2, -1};
  ref::ScatterAddRows({x.data(), rows.data(), weights.data(), y.data(), 3, 2});
  EXPECT_EQ(y, (std::vector<float>{16, 28, 30, 40, 45.5f, 55}));
}

TEST(ExpertRows, AGateScalesItsRow) {
  const std::vector<float> x = {1, 2, -1, 1}, w = {std::log(3.0f), 0};
  std::vector<float> y = {4, 8, 4, 8};
  ref::GateRows({x.data(), w.data(), y.data(), 2, 2, 2});
  for (int i = 0; i < 2; ++i) {
    EXPECT_NEAR(y[i], (i + 1) * 4 * 0.75, 1e-5);
    EXPECT_NEAR(y[2 + i], (i + 1) * 4 * 0.25, 1e-5);
  }
}

}  // namespace
}  // namespace weir
