// SPDX-License-Identifier: Apache-2.0
#include "engine/session/lookup.h"

#include <gtest/gtest.h>

#include <vector>

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

}  // namespace
}  // namespace weir
