// SPDX-License-Identifier: Apache-2.0
#include "eval/cider.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weir {
namespace {

using Texts = std::vector<std::string>;

// By hand: two pictures that share no words, so every run of words is worth log 2.
TEST(CiderTest, SmallSetsByHand) {
  Cider cider;
  cider.Add("Red square on sand.", Texts{"red square on sand"});     // every run: 10
  cider.Add("blue", Texts{"blue", "green circles near the water"});  // single words alone: a quarter; nothing
  const std::vector<double> scores = cider.Scores();
  ASSERT_EQ(scores.size(), 2u);
  EXPECT_NEAR(scores[0], 10, 1e-9);
  EXPECT_NEAR(scores[1], 10 * 0.25 / 2, 1e-9);

  // One of two words is right, one pair is wrong, lengths are equal: cos = 1/2 for words, 0 for pairs.
  Cider half;
  half.Add("red circle", Texts{"red square"});
  half.Add("zoo", Texts{"owl"});
  EXPECT_NEAR(half.Scores()[0], 10 * 0.5 / 4, 1e-9);

  // A repeated word counts as often as the reference has it: min(2, 1) * 1 / (2 * 1), one pair too many.
  Cider repeated;
  repeated.Add("red red", Texts{"red"});
  repeated.Add("zoo", Texts{"owl"});
  EXPECT_NEAR(repeated.Scores()[0], 10 * 0.5 * std::exp(-1 / 72.0) / 4, 1e-9);
}

// The scores of pycocoevalcap 1.2 (CiderScorer, n = 4, sigma = 6), the evaluation behind the tables of captions.
TEST(CiderTest, AgreesWithThePublishedEvaluation) {
  Cider cider;
  cider.Add("a red square on sand", Texts{"a red square on a sandy ground", "one red square lies on sand"});
  cider.Add("blue circles move left",
            Texts{"three blue circles move to the left", "blue circles going left", "a few blue circles"});
  cider.Add("the green word dog in red letters letters", Texts{"the word cat in green letters", "a green word"});
  const double expected[] = {4.10383365, 2.83467774, 1.36332679};
  const std::vector<double> scores = cider.Scores();
  ASSERT_EQ(scores.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(scores[i], expected[i], 1e-7) << i;
}

TEST(CiderTest, NothingToCompare) {
  EXPECT_TRUE(Cider().Scores().empty());
  Cider cider;
  cider.Add("", Texts{"red"});
  cider.Add("red", Texts{});
  cider.Add("...", Texts{"blue"});
  EXPECT_EQ(cider.Scores(), (std::vector<double>{0, 0, 0}));
  Cider one;  // in a set of one picture no word is rare
  one.Add("red", Texts{"red"});
  EXPECT_EQ(one.Scores(), std::vector<double>{0});
}

}  // namespace
}  // namespace weir
