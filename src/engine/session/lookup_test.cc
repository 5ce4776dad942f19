// SPDX-License-Identifier: Apache-2.0
#include "engine/session/lookup.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/session/read_ahead.h"

namespace weir {
namespace {

std::vector<int32_t> Next(const Lookup& lookup, int64_t most) {
  const Lookup::Guess guess = lookup.Find(most);
  return {guess.next.begin(), guess.next.end()};
}

Lookup After(std::vector<int32_t> tokens) {
  Lookup out;
  out.Prepare();
  out.Push(tokens);
  return out;
}

using Ids = std::vector<int32_t>;
constexpr Lookup::Votes kOne = Lookup::Votes::kOne;

TEST(LookupTest, WhatFollowedTheSameTokens) {
  const Lookup lookup = After({1, 2, 3, 4, 5, 6, 9, 2, 3});
  EXPECT_EQ(Next(lookup, 3), Ids({4, 5, 6}));
  EXPECT_EQ(Next(lookup, 1), Ids({4}));
  EXPECT_EQ(lookup.Find(3).n_same, 2);
  EXPECT_TRUE(Next(lookup, 0).empty());
}

TEST(LookupTest, TheLongestRunThenTheLatest) {
  EXPECT_EQ(Next(After({7, 1, 2, 10, 8, 1, 2, 11, 7, 1, 2}), 1), Ids({10}));
  EXPECT_EQ(Next(After({7, 1, 2, 10, 7, 1, 2, 11, 7, 1, 2}), 1), Ids({11}));
}

TEST(LookupTest, EquallyLongRunsVote) {
  const Lookup mixed = After({1, 2, 10, 1, 2, 11, 12, 1, 2, 11, 13, 1, 2, 14, 1, 2});
  EXPECT_EQ(Next(mixed, 2), Ids({11, 13}));  // the latest of the two that agree
  EXPECT_EQ(mixed.Find(2).votes, Lookup::Votes::kMixed);
  EXPECT_EQ(After({5, 1, 2, 11, 6, 1, 2, 11, 7, 1, 2}).Find(2).votes, Lookup::Votes::kAgree);
  EXPECT_EQ(After({1, 2, 11, 7, 2, 12, 1, 2}).Find(2).votes, Lookup::Votes::kOne);  // a longer one counts alone
}

TEST(LookupTest, OneTokenIsEnough) {
  const Lookup lookup = After({1, 2, 3, 5, 2});
  EXPECT_EQ(Next(lookup, 3), Ids({3, 5, 2}));
  EXPECT_EQ(lookup.Find(3).n_same, 1);
}

TEST(LookupTest, NothingWhereNoneIsTheSame) {
  EXPECT_TRUE(Next(After({1, 2, 3}), 3).empty());
  EXPECT_TRUE(Next(After({1}), 3).empty());
  EXPECT_TRUE(Next(After({}), 3).empty());
}

TEST(LookupTest, RowsThatAreNoTokensEndARunAndAGuess) {
  EXPECT_EQ(After({1, -1, 2, 3, 1, -1, 2}).Find(3).n_same, 1);
  EXPECT_EQ(Next(After({1, 2, 3, -1, 5, 1, 2}), 3), Ids({3}));
  EXPECT_TRUE(Next(After({1, 2, -5, 1, 2, -5}), 3).empty());
}

TEST(LookupTest, KeepsTheNewestOfALongStream) {
  Lookup lookup;
  lookup.Prepare();
  const int64_t capacity = Lookup::kHistory;
  lookup.Push(Ids({-1, 100, 101, 102}));
  for (int32_t i = 0; i < 3 * capacity; ++i) lookup.Push(Ids({200 + i % 5000}));
  EXPECT_EQ(Next(lookup, 2).size(), 2u);  // still there after it was full
  lookup.Push(Ids({100, 101}));
  EXPECT_TRUE(Next(lookup, 2).empty());  // forgotten
  lookup.Push(std::vector<int32_t>(static_cast<size_t>(2 * capacity), 7));
  EXPECT_EQ(lookup.Find(4).n_same, Lookup::kMostSame);
}

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
  }
  EXPECT_EQ(right.Best(4, kOne, 7), 7);
  EXPECT_EQ(wrong.Best(4, kOne, 7), 0);
  EXPECT_EQ(dear.Best(4, kOne, 7), 0);
  EXPECT_GT(wrong.Best(8, kOne, 7), 0);  // longer runs may still be right
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
