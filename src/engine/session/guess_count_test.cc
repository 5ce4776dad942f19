// SPDX-License-Identifier: Apache-2.0
#include "engine/session/guess_count.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace weir {
namespace {

constexpr Lookup::Votes kOne = Lookup::Votes::kOne;

TEST(GuessCountTest, NoneBeforeItKnowsWhatAStepCosts) {
  GuessCount count;
  EXPECT_EQ(count.Best(8, kOne, 7), 0);
  count.Took({.seconds = 0.01});
  EXPECT_GT(count.Best(8, kOne, 7), 0);
  EXPECT_LE(count.Best(8, kOne, 2), 2);
}

TEST(GuessCountTest, MoreWhereTheyAreRightAndCheap) {
  GuessCount right, wrong, dear;
  for (int i = 0; i < 100; ++i) {
    for (GuessCount* count : {&right, &wrong, &dear}) count->Took({.seconds = 0.01});
    right.Took({.seconds = 0.011, .n_same = 4, .n_guessed = 5, .n_right = 5});
    wrong.Took({.seconds = 0.0101, .n_same = 4, .n_guessed = 5, .n_right = 0});
    dear.Took({.seconds = 0.060, .n_same = 4, .n_guessed = 5, .n_right = 5});
    dear.Took({.seconds = 0.020, .n_same = 4, .n_guessed = 1, .n_right = 1});
  }
  EXPECT_EQ(right.Best(4, kOne, 7), 7);
  EXPECT_EQ(wrong.Best(4, kOne, 7), 0);
  EXPECT_EQ(dear.Best(4, kOne, 7), 0);
  EXPECT_GT(wrong.Best(8, kOne, 7), 0);  // longer runs may still be right
}

TEST(GuessCountTest, ADearFirstRowMeansNoneOrMany) {
  // Seven guesses cost 0.8 of a step in both.
  GuessCount first_dear, all_alike;
  for (int i = 0; i < 100; ++i) {
    for (int64_t n : {0, 1, 4, 7}) {
      const double further = static_cast<double>(std::max<int64_t>(n - 1, 0));
      const double dear = n == 0 ? 0 : 0.5 + 0.05 * further, alike = n == 0 ? 0 : 0.08 + 0.12 * further;
      // Half of the first guesses are right, and what follows those.
      const int64_t n_right = i % 2 == 0 ? n : 0;
      first_dear.Took({.seconds = 0.01 * (1 + dear), .n_same = 2, .n_guessed = n, .n_right = n_right});
      all_alike.Took({.seconds = 0.01 * (1 + alike), .n_same = 2, .n_guessed = n, .n_right = n_right});
    }
  }
  EXPECT_EQ(first_dear.Best(2, kOne, 1), 0);
  EXPECT_EQ(all_alike.Best(2, kOne, 1), 1);
  EXPECT_EQ(first_dear.Best(2, kOne, 7), 7);
}

TEST(GuessCountTest, WhatFollowsARightGuessIsJudgedByTheLongerRun) {
  GuessCount count;
  for (int i = 0; i < 200; ++i) {
    count.Took({.seconds = 0.01});
    // After three equal tokens the next is right, and no other.
    count.Took({.seconds = 0.0115, .n_same = 3, .n_guessed = 3, .n_right = 1});
  }
  EXPECT_EQ(count.Best(3, kOne, 7), 1);
  EXPECT_EQ(count.Best(4, kOne, 7), 0);  // that next token is the fifth equal one
  EXPECT_EQ(count.Best(2, kOne, 7), 2);
}

TEST(GuessCountTest, WhatItLosesIsBounded) {
  GuessCount count;
  double plain = 0, lost = 0;
  for (int i = 0; i < 3000; ++i) {
    // A text that misleads: eight tokens are the same, and the next is another.
    const int64_t n = count.Best(8, kOne, 7);
    const double seconds = 0.01 * (1 + 0.1 * static_cast<double>(n));
    count.Took({.seconds = seconds, .n_same = 8, .n_guessed = n});
    plain += 0.01;
    lost += seconds - 0.01;
  }
  EXPECT_LT(lost, 0.02 * plain);
}

// What 1,000 steps with a draft lose, of 0.01 s each without one; *attempts counts those with guesses.
double LossOfADraft(GuessCount& count, bool right, int* attempts) {
  double lost = 0;
  for (int i = 0; i < 1000; ++i) {
    const int64_t n = count.BestDraft(7);
    const double draft = 0.001 * static_cast<double>(n), seconds = 0.01 * (1 + 0.05 * static_cast<double>(n)) + draft;
    const int64_t n_right = right ? n : 0;
    count.Took(
        {.seconds = seconds, .draft_seconds = draft, .n_same = GuessCount::kDraft, .n_guessed = n, .n_right = n_right});
    lost += seconds - 0.01 * static_cast<double>(1 + n_right);
    *attempts += n > 0 ? 1 : 0;
  }
  return lost;
}

TEST(GuessCountTest, ADraftThatIsRightGoesOnAndOneThatIsWrongRests) {
  GuessCount good, bad;
  int attempts = 0;
  EXPECT_LT(LossOfADraft(good, true, &attempts), -10);
  EXPECT_GT(attempts, 990);
  attempts = 0;
  EXPECT_LT(LossOfADraft(bad, false, &attempts), 0.02 * 10);
  EXPECT_GT(attempts, 1) << "it is tried again";
  EXPECT_LT(attempts, 100);
}

}  // namespace
}  // namespace weir
