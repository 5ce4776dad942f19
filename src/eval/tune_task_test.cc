// SPDX-License-Identifier: Apache-2.0
#include "eval/tune_task.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "support/loaded.h"

namespace weir {
namespace {

class TuneTaskTest : public testing::TinyLlamaTest {
 protected:
  void SetUp() override {
    options_.n_trials = 2;
    options_.n_questions = 2;
  }
  Result<TuneTask> Make(int32_t pot, const std::string& policy = "streaming_llm") {
    SessionOptions session;
    session.pot_slots = pot;
    session.policy = *ParsePolicySpec(policy);
    return TuneTask::Make(*model_, session, options_);
  }
  TuneFigures Measure(const TuneTask& task, const std::string& policy, bool held_out = false) {
    auto figures = task.Measure(*ParsePolicySpec(policy), held_out);
    EXPECT_TRUE(figures.ok()) << figures.status().message();
    return figures.ok() ? *std::move(figures) : TuneFigures{{"objective", {}}};
  }
  std::vector<int32_t> Text(size_t n) {
    Rng rng(11);
    std::vector<int32_t> out(n);
    for (int32_t& id : out) id = static_cast<int32_t>(rng.Below(64));
    return out;
  }

  TuneTaskOptions options_;
};

TEST_F(TuneTaskTest, ThePartsMakeTheObjective) {
  options_.weight_inside = 1;
  options_.weight_beyond = 2;
  options_.weight_text = 5;
  auto task = Make(128);
  ASSERT_TRUE(task.ok()) << task.status().message();
  EXPECT_EQ(task->text_tokens_wanted(), 2 * 2 * 3 * 128);
  TuneFigures figures = Measure(*task, "streaming_llm");
  ASSERT_EQ(figures.size(), 3u);
  for (size_t t = 0; t < 2; ++t) {
    EXPECT_NEAR(figures[0].trials[t], (figures[1].trials[t] + 2 * figures[2].trials[t]) / 3, 1e-12);
    EXPECT_GT(figures[1].trials[t], 0);
  }
  EXPECT_NE(figures[1].trials[0], figures[1].trials[1]);
  const int64_t tokens = task->tokens_per_point();
  ASSERT_TRUE(task->SetText(Text(100000)).ok());
  EXPECT_EQ(task->tokens_per_point(), tokens + 2 * 3 * 128);
  figures = Measure(*task, "streaming_llm");
  ASSERT_EQ(figures.size(), 4u);
  EXPECT_EQ(figures[3].name, "text");
  for (size_t t = 0; t < 2; ++t) {
    EXPECT_NEAR(figures[0].trials[t], (figures[1].trials[t] + 2 * figures[2].trials[t] + 5 * figures[3].trials[t]) / 8,
                1e-12);
  }
}

TEST_F(TuneTaskTest, TheSameTrialsForEveryCallOthersHeldOut) {
  auto task = Make(128);
  ASSERT_TRUE(task.ok()) << task.status().message();
  ASSERT_TRUE(task->SetText(Text(4 * 300)).ok());
  const TuneFigures first = Measure(*task, "h2o"), other = Measure(*task, "h2o", true), again = Measure(*task, "h2o"),
                    window = Measure(*task, "window");
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].trials, again[i].trials) << first[i].name;
    EXPECT_NE(first[i].trials[0], other[i].trials[0]) << first[i].name;
    EXPECT_NE(first[i].trials[1], other[i].trials[1]) << first[i].name;
  }
  // Another policy forgets other tokens; a window of the whole pot size differs beyond it.
  EXPECT_NE(first[2].trials, window[2].trials);
  options_.seed = 1;
  auto seeded = Make(128);
  ASSERT_TRUE(seeded.ok());
  EXPECT_NE(Measure(*seeded, "h2o")[1].trials, first[1].trials);
}

TEST_F(TuneTaskTest, DistancesAreInsideAndBeyond) {
  for (const int32_t pot : {128, 1024}) {
    auto task = Make(pot);
    ASSERT_TRUE(task.ok()) << task.status().message();
    EXPECT_EQ(task->pot(), pot);
    const LinesOptions& lines = task->lines();
    ASSERT_EQ(lines.distances.size(), 4u);
    EXPECT_TRUE(std::is_sorted(lines.distances.begin(), lines.distances.end()));
    // Tokens of a trial: those before the first question, and the lines between questions.
    const double per_line = static_cast<double>(task->tokens_per_point()) / options_.n_trials /
                            (lines.distances[3] + lines.n * lines.every);
    EXPECT_LT(lines.distances[1] * per_line, 0.75 * pot);
    EXPECT_GT(lines.distances[2] * per_line, pot);
    EXPECT_NEAR(lines.distances[3] * per_line, 2 * pot, 0.1 * pot);
    EXPECT_EQ(lines.gap_bytes > 0, pot == 1024);
    EXPECT_EQ(task->questions_per_point(), 2 * 2 * 4);
  }
  options_.weight_beyond = 0;
  auto inside = Make(128);
  ASSERT_TRUE(inside.ok());
  EXPECT_EQ(inside->lines().distances.size(), 2u);
  EXPECT_EQ(Measure(*inside, "window").size(), 2u);
}

TEST_F(TuneTaskTest, RefusesWhatMeasuresNothing) {
  EXPECT_EQ(Make(16).status().code(), StatusCode::kInvalidArgument);
  auto task = Make(128);
  ASSERT_TRUE(task.ok());
  EXPECT_EQ(task->SetText(Text(4 * 128)).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(task->SetText(Text(4 * 129)).ok());
  EXPECT_EQ(task->Measure(*ParsePolicySpec("full"), false).status().code(), StatusCode::kOverBudget);
  options_.weight_inside = options_.weight_beyond = 0;
  task = Make(16);  // no questions about lines
  ASSERT_TRUE(task.ok()) << task.status().message();
  EXPECT_EQ(task->Measure(*ParsePolicySpec("window"), false).status().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(task->SetText(Text(200)).ok());
  EXPECT_EQ(Measure(*task, "window").size(), 2u);
  options_.weight_text = 0;
  EXPECT_EQ(Make(128).status().code(), StatusCode::kInvalidArgument);
  for (const double bad : {-1.0, std::nan(""), HUGE_VAL}) {
    options_.weight_text = bad;
    EXPECT_EQ(Make(128).status().code(), StatusCode::kInvalidArgument) << bad;
  }
  options_ = TuneTaskOptions();
  options_.n_trials = 0;
  EXPECT_EQ(Make(128).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(TuneTaskTest, StopsWhenAsked) {
  std::atomic<bool> stop{true};
  options_.stop = &stop;
  auto task = Make(128);
  ASSERT_TRUE(task.ok());
  EXPECT_EQ(task->Measure(*ParsePolicySpec("window"), false).status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace weir
