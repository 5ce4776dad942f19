// SPDX-License-Identifier: Apache-2.0
// Rules over scripted log-odds: what they learn, when they begin and end, and that no event comes twice.
#include "rules/tracker.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace weir {
namespace {

using Change = RuleTracker::Change;

// One letter a check, a second apart: '.' nothing, 'B' it began, 'E' it ended.
std::string Run(RuleTracker* tracker, const std::vector<double>& odds, int64_t* t_ms) {
  std::string out;
  for (const double value : odds) {
    const RuleTracker::Step step = tracker->Check(value, *t_ms);
    *t_ms += 1000;
    out += step.change == Change::kBegan ? 'B' : step.change == Change::kEnded ? 'E' : '.';
  }
  return out;
}

class RuleTrackerTest : public ::testing::Test {
 protected:
  std::string Run(const std::vector<double>& odds) { return weir::Run(&tracker_, odds, &t_ms_); }
  void Become(const RuleTuning& tuning) {
    ASSERT_TRUE(CheckTuning(tuning).ok());
    tracker_ = RuleTracker(tuning);
    t_ms_ = 0;
  }
  static std::vector<double> Times(size_t n, double value) { return std::vector<double>(n, value); }

  RuleTracker tracker_{RuleTuning{}};
  int64_t t_ms_ = 0;
};

TEST_F(RuleTrackerTest, AnEventBeginsAndEndsOnce) {
  EXPECT_EQ(Run(Times(12, -6)), "............");
  EXPECT_EQ(Run(Times(6, 2)), ".B....");
  EXPECT_EQ(tracker_.since_ms(), 12000);
  EXPECT_DOUBLE_EQ(tracker_.peak(), 8);
  EXPECT_EQ(Run(Times(5, -6)), ".E...");
  EXPECT_EQ(Run(Times(3, 2)), ".B.");
}

TEST_F(RuleTrackerTest, ItsOwnUsualAnswersAreNoEvent) {
  EXPECT_EQ(Run(Times(40, 4)), std::string(40, '.'));  // it always says yes
  EXPECT_EQ(Run(Times(2, 6)), "..");
  EXPECT_EQ(Run(Times(2, 8)), ".B");
}

TEST_F(RuleTrackerTest, WhatVariesMuchMustRiseMore) {
  std::vector<double> noisy;
  for (int i = 0; i < 32; ++i) noisy.push_back(i % 2 == 0 ? -4 : 2);
  EXPECT_EQ(Run(noisy), std::string(32, '.'));
  EXPECT_EQ(Run(Times(3, 5)), "...");  // six nats above the median, where three are usual
}

TEST_F(RuleTrackerTest, NothingHappensWhileItLearns) {
  EXPECT_EQ(Run({-9, -9, -9, 5, 5, -9, -9}), ".......");
  EXPECT_FALSE(tracker_.calibrated());
  EXPECT_EQ(Run({-9}), ".");
  EXPECT_TRUE(tracker_.calibrated());
  EXPECT_EQ(Run({5, 5}), ".B");
}

TEST_F(RuleTrackerTest, AConditionThatWasTrueWhileItLearnedIsLearnedAnew) {
  EXPECT_EQ(Run(Times(10, 6)), "..........");
  EXPECT_EQ(Run(Times(3, -5)), "...");
  EXPECT_EQ(Run(Times(2, 6)), ".B");
}

TEST_F(RuleTrackerTest, SomethingRareDoesNotMakeAnOldRuleLearnAnew) {
  Run(Times(RuleTracker::kUsual, 0));
  Run({-20});
  EXPECT_EQ(Run(Times(4, 0)), "....");
  EXPECT_EQ(Run(Times(2, 3)), ".B");
}

TEST_F(RuleTrackerTest, SingleChecksAreNotEnough) {
  Run(Times(12, -6));
  EXPECT_EQ(Run({2, -6, 2, -6, 2, -6}), "......");
  EXPECT_EQ(Run({2, 2}), ".B");
  EXPECT_EQ(Run({-6, 2, -6, 2}), "....");
  EXPECT_EQ(Run({-6, -6}), ".E");
}

TEST_F(RuleTrackerTest, BetweenTheThresholdsItStaysAsItIs) {
  Run(Times(12, -1));
  EXPECT_EQ(Run(Times(4, 1.6)), "....");  // score 2.6
  EXPECT_EQ(Run(Times(2, 2)), ".B");
  EXPECT_EQ(Run(Times(4, 0.6)), "....");  // score 1.6
  EXPECT_EQ(Run(Times(2, 0.4)), ".E");
}

TEST_F(RuleTrackerTest, UnlikelyIsNeverAnEvent) {
  Run(Times(12, -20));
  EXPECT_EQ(Run(Times(5, 1)), ".....");
  EXPECT_EQ(Run(Times(2, 1.5)), ".B");
}

// The odds of "no" vary by many nats; a sure "yes" is above all of them, and a likelier "no" than usual is no "yes".
TEST_F(RuleTrackerTest, WhatVariesVeryMuchIsStillSeen) {
  std::vector<double> noisy;
  for (int i = 0; i < 64; ++i) noisy.push_back(-14 + 12 * (i % 7) / 6.0);  // -14 to -2, a spread of 4.5
  EXPECT_EQ(Run(noisy), std::string(64, '.'));
  EXPECT_EQ(Run(Times(3, 2)), ".B.");
  EXPECT_EQ(Run(Times(3, -1.4)), "...") << "no end: a score of 2";
  EXPECT_EQ(Run(Times(2, -1.6)), ".E");
  EXPECT_EQ(Run(Times(2, 2)), ".B");
}

TEST_F(RuleTrackerTest, ALongHoldIsReachedByAYoungRule) {
  RuleTuning tuning;
  tuning.n_begin = 20;
  Become(tuning);
  Run(Times(8, -6));
  EXPECT_EQ(Run(Times(20, 2)), std::string(19, '.') + "B");
}

TEST_F(RuleTrackerTest, ItRestsAfterAnEvent) {
  RuleTuning tuning;
  tuning.cooldown_ms = 5000;
  tuning.n_begin = tuning.n_end = 1;
  Become(tuning);
  Run(Times(8, -6));
  EXPECT_EQ(Run({2, -6}), "BE");  // ended at 9 s
  EXPECT_EQ(Run({2, 2, -6, -6, 2}), "....B");
}

TEST_F(RuleTrackerTest, OddNumbersDoNoHarm) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Run({kInfinity, -kInfinity, std::nan(""), 1e300, -1e300, 0, 0, 0, 0, 0});
  Run(Times(30, 0));
  EXPECT_EQ(Run({kInfinity, kInfinity, std::nan(""), std::nan("")}), ".B.E");
}

TEST_F(RuleTrackerTest, ARestoredTrackerGoesOnAlike) {
  RuleTuning tuning;
  tuning.cooldown_ms = 3000;
  std::vector<double> odds = Times(11, -6);
  for (int i = 0; i < 40; ++i) odds.push_back(i % 9 < 4 ? 3 : -5.5 + 0.1 * (i % 3));
  Become(tuning);
  const std::string whole = Run(odds);
  EXPECT_NE(whole.find('B'), std::string::npos);
  for (size_t cut = 0; cut <= odds.size(); ++cut) {
    Become(tuning);
    std::string parts = Run({odds.begin(), odds.begin() + static_cast<std::ptrdiff_t>(cut)});
    RuleTracker other(tuning);
    const auto text = ParseJsonObject(JsonText(tracker_.Save()));
    ASSERT_TRUE(text.ok());
    ASSERT_TRUE(other.Restore(*text).ok());
    tracker_ = other;
    parts += Run({odds.begin() + static_cast<std::ptrdiff_t>(cut), odds.end()});
    ASSERT_EQ(parts, whole) << "cut at " << cut;
  }
}

TEST_F(RuleTrackerTest, BrokenStatesAreRefused) {
  const Json good = tracker_.Save();
  for (const auto& [key, value] : std::vector<std::pair<std::string, Json>>{{"usual", Json(std::vector<double>(65, 0))},
                                                                            {"usual", {"x"}},
                                                                            {"usual", {1e9}},
                                                                            {"usual", 3},
                                                                            {"above", 2},
                                                                            {"below", -1},
                                                                            {"learned", 65},
                                                                            {"holds", "yes"},
                                                                            {"more", 1}}) {
    Json bad = good;
    bad[key] = value;
    EXPECT_EQ(tracker_.Restore(bad).code(), StatusCode::kInvalidArgument) << key;
  }
}

TEST_F(RuleTrackerTest, StatesThatNoChecksLeadToAreRefused) {
  const Json fresh = tracker_.Save();
  Run(Times(9, -6));
  const Json calm = tracker_.Save();
  Run(Times(1, 2));
  const Json rising = tracker_.Save();
  Run(Times(2, 2));
  const Json holding = tracker_.Save();
  Run(Times(1, -6));
  const Json falling = tracker_.Save();
  for (const Json& good : {fresh, calm, rising, holding, falling}) {
    EXPECT_TRUE(RuleTracker(RuleTuning()).Restore(good).ok()) << good;
  }
  const auto refuse = [&](Json state, const Json& change) {
    state.update(change);
    EXPECT_EQ(RuleTracker(RuleTuning()).Restore(state).code(), StatusCode::kInvalidArgument) << state;
  };
  refuse(fresh, {{"calibrated", true}});
  refuse(fresh, {{"holds", true}});
  refuse(fresh, {{"learned", 3}});
  refuse(calm, {{"usual", Json::array()}});
  refuse(calm, {{"calibrated", false}});
  refuse(calm, {{"below", 1}});
  refuse(holding, {{"above", 1}});
  refuse(holding, {{"calibrated", false}, {"usual", {1}}, {"learned", 1}});
}

TEST(RuleTuningTest, ValuesOutOfRangeAreNamed) {
  RuleTuning tuning;
  tuning.off = 4;
  EXPECT_NE(CheckTuning(tuning).message().find("ends below"), std::string::npos);
  tuning = RuleTuning();
  tuning.on = std::nan("");
  EXPECT_FALSE(CheckTuning(tuning).ok());
  tuning = RuleTuning();
  tuning.n_begin = 0;
  EXPECT_FALSE(CheckTuning(tuning).ok());
  tuning = RuleTuning();
  tuning.n_calibrate = 65;
  EXPECT_FALSE(CheckTuning(tuning).ok());
  tuning = RuleTuning();
  tuning.cooldown_ms = -1;
  EXPECT_FALSE(CheckTuning(tuning).ok());
}

}  // namespace
}  // namespace weir
