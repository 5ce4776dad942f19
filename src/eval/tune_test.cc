// SPDX-License-Identifier: Apache-2.0
#include "eval/tune.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace weir {
namespace {

PolicySpec Spec(const std::string& text) {
  auto spec = ParsePolicySpec(text);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  return *std::move(spec);
}

std::vector<TuneAxis> Axes(const PolicySpec& start, const std::string& search) {
  auto axes = TuneAxes(start, search);
  EXPECT_TRUE(axes.ok()) << axes.status().message();
  return *std::move(axes);
}

// A slanted valley over (log10 b, recent), whose minimum one pass along the axes does not reach, with noise common to
// all points (material) and independent noise per point.
struct Valley {
  double lean = 0, shared = 1, own = 0, level = 0;
  int n_trials = 6;
  int64_t n_measured = 0, n_held_out = 0;
  std::map<std::string, int> seen;
  Result<TuneFigures> operator()(const PolicySpec& policy, bool held_out) {
    held_out ? ++n_held_out : ++n_measured;
    if (!held_out) ++seen[policy.text];
    const double x = std::log10(policy.options.Number("b") + 1e-5) + 3, y = policy.options.Number("recent") / 64 - 1;
    const double truth = level * (x * x + y * y + lean * x * y);
    TuneFigure objective{"objective", {}}, part{"inside", {}};
    Rng material(held_out ? 2 : 1), noise(std::hash<std::string>()(policy.text) + (held_out ? 1 : 0));
    for (int t = 0; t < n_trials; ++t) {
      objective.trials.push_back(truth + shared * material.Uniform() + own * noise.Uniform());
      part.trials.push_back(7);
    }
    return TuneFigures{objective, part};
  }
};

constexpr const char* kSearch = "b=0,1e-4,1e-3,1e-2,1e-1;recent=16,32,64,128,256";

TEST(TuneAxes, DeclaredOnesWithoutTheGiven) {
  const auto axes = Axes(Spec("inf_mllm"), "");
  ASSERT_EQ(axes.size(), 2u);
  EXPECT_EQ(axes[0].key, "recent");
  EXPECT_EQ(axes[1].key, "b");
  EXPECT_GE(axes[1].values.size(), 3u);
  const auto rest = Axes(Spec("inf_mllm:b=0.5"), "");
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].key, "recent");
  EXPECT_FALSE(TuneAxes(Spec("full"), "").ok());
  EXPECT_FALSE(TuneAxes(Spec("inf_mllm:b=0.5,recent=32"), "").ok());
}

TEST(TuneAxes, WrittenOnes) {
  const auto axes = Axes(Spec("infinipot"), "alpha=0,0.50,5e-1,1;catalyst=\"What, then; and why?\",Sum up.");
  ASSERT_EQ(axes.size(), 2u);
  EXPECT_EQ(axes[0].values, (std::vector<std::string>{"0", "0.5", "1"}));
  EXPECT_EQ(axes[1].key, "catalyst");
  EXPECT_EQ(axes[1].values, (std::vector<std::string>{"\"What, then; and why?\"", "Sum up."}));
  for (const char* bad : {"alpha", "alpha=", "alpha=0,", "alpha=2", "alpha=0;alpha=1", "alphas=0", ";",
                          "alpha=0;;ratio=1", "=1", "rows=sum,mean", "alpha=\"0"}) {
    EXPECT_EQ(TuneAxes(Spec("infinipot"), bad).status().code(), StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_FALSE(TuneAxes(Spec("infinipot:alpha=0"), "alpha=0,1").ok());
}

TEST(Tune, FindsTheGroundOfAValley) {
  Valley valley;
  valley.level = 1;
  TuneOptions options;
  int n_reports = 0;
  std::vector<TunePoint> held_out;
  options.report = [&](const TunePoint& point) {
    if (point.held_out) {
      held_out.push_back(point);
    } else {
      ++n_reports;
    }
  };
  const PolicySpec start = Spec("inf_mllm:step=1");
  const auto axes = Axes(start, kSearch);
  const auto result = Tune(start, axes, std::ref(valley), options);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->found.text,
            "inf_mllm:recent=64,b=0.001,bias=fixed,old=0.05,votes=last,per_kv_head=off,capacity=0,step=1");
  EXPECT_TRUE(result->converged);
  EXPECT_TRUE(result->kept_found);
  EXPECT_EQ(&result->kept(), &result->found);
  // One pass, and one that changes nothing: no point twice, the material's noise gone from the difference.
  EXPECT_EQ(PointsOfOnePass(start, axes), 9);
  EXPECT_EQ(result->n_points, 9);
  EXPECT_EQ(valley.n_measured, 9);
  EXPECT_EQ(n_reports, 9);
  for (const auto& [text, n] : valley.seen) EXPECT_EQ(n, 1) << text;
  ASSERT_EQ(held_out.size(), 2u);
  EXPECT_NEAR(held_out[1].gain.mean(), std::pow(std::log10(1.1e-4) + 3, 2) - std::pow(std::log10(1.01e-3) + 3, 2),
              1e-9);
  EXPECT_LT(held_out[1].gain.std_error(), 1e-9);
  EXPECT_GT(MeanOf(held_out[1].figures[0]).std_error(), 0.01);
}

TEST(Tune, ALeaningValleyTakesMorePasses) {
  Valley valley;
  valley.level = 1;
  valley.lean = -1.5;
  const PolicySpec start = Spec("inf_mllm:b=1e-5,recent=256,step=1");
  PolicySpec free = start;
  free.given.clear();
  const auto result = Tune(free, Axes(free, kSearch), std::ref(valley), {});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_TRUE(result->converged);
  EXPECT_GT(result->n_points, PointsOfOnePass(free, Axes(free, kSearch)));
  // No neighbour along an axis is better.
  for (const TuneAxis& axis : Axes(free, kSearch)) {
    for (const std::string& value : axis.values) {
      const auto near = WithOption(result->found, axis.key, value);
      EXPECT_LE(MeanOf((*valley(result->found, false))[0]).mean(), MeanOf((*valley(*near, false))[0]).mean() + 1e-12);
    }
  }
}

TEST(Tune, ADifferenceWithinItsErrorKeepsTheDefault) {
  int n_kept = 0, n_moved = 0;
  for (int i = 0; i < 20; ++i) {
    Valley valley;  // flat: only noise tells points apart
    valley.own = 1;
    const PolicySpec start = Spec("inf_mllm:step=" + std::to_string(i));
    const auto result = Tune(start, Axes(start, kSearch), std::ref(valley), {});
    ASSERT_TRUE(result.ok()) << result.status().message();
    const RunningMean gain = GainOf(result->start_figures[0], result->found_figures[0]);
    EXPECT_EQ(result->kept_found, gain.mean() > gain.std_error());
    n_moved += result->found.text != start.text;
    n_kept += result->kept_found;
    if (!result->kept_found) {
      EXPECT_EQ(result->kept().text, start.text);
    }
  }
  // Noise always looks like an improvement in the search, but rarely in the held-out trials.
  EXPECT_GE(n_moved, 15);
  EXPECT_LE(n_kept, 10);
}

TEST(Tune, OneTrialDecidesNothing) {
  Valley valley;
  valley.level = 1;
  valley.n_trials = 1;
  const PolicySpec start = Spec("inf_mllm");
  const auto result = Tune(start, Axes(start, kSearch), std::ref(valley), {});
  ASSERT_TRUE(result.ok());
  EXPECT_NE(result->found.text, start.text);
  EXPECT_FALSE(result->kept_found);
}

TEST(Tune, TheBestStartIsMeasuredOnceMore) {
  Valley valley;
  valley.level = 1;
  const PolicySpec start = Spec("inf_mllm:b=0.001,step=1");
  const auto result = Tune(start, Axes(start, "recent=16,32,128"), std::ref(valley), {});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->found.text, start.text);
  EXPECT_FALSE(result->kept_found);
  EXPECT_EQ(valley.n_held_out, 1);
  EXPECT_EQ(GainOf(result->start_figures[0], result->found_figures[0]).mean(), 0);
}

TEST(Tune, RefusedPointsArePassedOverFailuresAreNot) {
  Valley valley;
  valley.level = 1;
  const auto refuse = [&](StatusCode code, const std::string& where) {
    return [&valley, code, where](const PolicySpec& policy, bool held_out) -> Result<TuneFigures> {
      if (policy.text.find(where) != std::string::npos) return Status(code, "no");
      return valley(policy, held_out);
    };
  };
  const PolicySpec start = Spec("inf_mllm");
  TuneOptions options;
  int n_refused = 0;
  options.report = [&](const TunePoint& point) { n_refused += !point.status.ok(); };
  auto result = Tune(start, Axes(start, kSearch), refuse(StatusCode::kOverBudget, "b=0.001,"), options);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(n_refused, 1);
  EXPECT_EQ(result->found.text.find("b=0.001,"), std::string::npos);
  EXPECT_EQ(Tune(start, Axes(start, kSearch), refuse(StatusCode::kCancelled, "b=0.001,"), {}).status().code(),
            StatusCode::kCancelled);
  EXPECT_EQ(Tune(start, Axes(start, kSearch), refuse(StatusCode::kOverBudget, "b=0.0001,"), {}).status().code(),
            StatusCode::kOverBudget);
}

TEST(Tune, TheLimitEndsIt) {
  Valley valley;
  valley.level = 1;
  const PolicySpec start = Spec("inf_mllm");
  TuneOptions options;
  options.max_points = 3;
  const auto result = Tune(start, Axes(start, kSearch), std::ref(valley), options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(valley.n_measured, 3);
  EXPECT_FALSE(result->converged);
}

TEST(ToProfile, GivesTheKeptPolicyBack) {
  Valley valley;
  valley.level = 1;
  const PolicySpec start = Spec("inf_mllm:per_kv_head=on");
  const auto result = Tune(start, Axes(start, kSearch), std::ref(valley), {});
  ASSERT_TRUE(result.ok());
  const auto profile = ParseProfile(ProfileText(ToProfile(*result, "M", 512, 3)), "x");
  ASSERT_TRUE(profile.ok()) << profile.status().message();
  EXPECT_EQ(profile->policy, "inf_mllm");
  EXPECT_TRUE(profile->kept_found);
  EXPECT_EQ(std::get<double>(profile->options.at("b")), 0.001);
  EXPECT_EQ(std::get<std::string>(profile->options.at("per_kv_head")), "on");
  ASSERT_EQ(profile->tasks.size(), 2u);
  EXPECT_EQ(profile->tasks[0].name, "objective");
  EXPECT_GT(profile->tasks[0].gain, 0.5);
  EXPECT_EQ(profile->tasks[1].found, 7);
}

}  // namespace
}  // namespace weir
