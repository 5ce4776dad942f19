// SPDX-License-Identifier: Apache-2.0
#include "eval/answer_metrics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weir {
namespace {

using Texts = std::vector<std::string>;

double Score(const char* metric, const std::string& prediction, const Texts& golds) {
  const Result<double> score = AnswerScore(metric, prediction, golds);
  EXPECT_TRUE(score.ok()) << score.status().message();
  return score.ok() ? *score : -1;
}

TEST(AnswerMetricsTest, ExactIsExact) {
  EXPECT_EQ(Score("exact", " Red.\n", {"blue", "red"}), 1);
  EXPECT_EQ(Score("exact", "dark  RED", {"dark red"}), 1);
  EXPECT_EQ(Score("exact", "dark red", {"red"}), 0);
  EXPECT_EQ(Score("exact", "", {"red"}), 0);
  // Letters are answers: articles are not removed.
  EXPECT_EQ(Score("exact", "the", {"A"}), 0);
  EXPECT_EQ(Score("exact", "a", {"A"}), 1);
  EXPECT_EQ(Score("exact", "3.", {"3"}), 1);
  EXPECT_EQ(Score("exact", ".", {"x"}), 0);
}

TEST(AnswerMetricsTest, ContainsFindsItAnywhere) {
  EXPECT_EQ(Score("contains", "The sign says:\n STOP  here", {"go", "stop here"}), 1);
  EXPECT_EQ(Score("contains", "sto p", {"stop"}), 0);
  EXPECT_EQ(Score("contains", "stop", {"stop here"}), 0);
  EXPECT_EQ(Score("contains", "anything", {""}), 0);
}

// What the published evaluation makes of these, by its rules: a mark beside a space goes, another becomes a space; a
// comma between digits makes all marks go; a period stays before a digit.
TEST(AnswerMetricsTest, VqaTextFollowsTheRules) {
  EXPECT_EQ(VqaText("The  Two dogs!"), "2 dogs");
  EXPECT_EQ(VqaText("Yes, it is."), "yes it is");
  EXPECT_EQ(VqaText("black/white"), "black white");
  EXPECT_EQ(VqaText("black / white"), "black white");
  EXPECT_EQ(VqaText("1,000"), "1000");
  EXPECT_EQ(VqaText("1,000 a-b"), "1000 ab");
  EXPECT_EQ(VqaText("3.5 feet."), "3.5 feet");
  EXPECT_EQ(VqaText("None"), "0");
  EXPECT_EQ(VqaText("ten"), "10");
  EXPECT_EQ(VqaText("don't"), VqaText("dont"));
  EXPECT_EQ(VqaText("an"), "");
}

TEST(AnswerMetricsTest, VqaAccuracyIsTheMeanOverNineOfTen) {
  const double expected[] = {0, 0.3, 0.6, 0.9, 1, 1, 1, 1, 1, 1, 1};
  for (size_t n = 0; n <= 10; ++n) {
    Texts golds(n, "Red.");
    for (size_t i = n; i < 10; ++i) golds.push_back("colour " + std::to_string(i));
    EXPECT_NEAR(Score("vqa", "red", golds), expected[n], 1e-12) << n;
  }
  EXPECT_EQ(Score("vqa", "two", {"2"}), 1);
  EXPECT_EQ(Score("vqa", "two", {"3", "2", "2"}), 1);
  EXPECT_EQ(Score("vqa", "two", {"3", "4"}), 0);
}

TEST(AnswerMetricsTest, AnlsCountsEdits) {
  EXPECT_NEAR(Score("anls", "sitting", {"kitten"}), 1 - 3.0 / 7, 1e-12);
  EXPECT_NEAR(Score("anls", "Intention ", {"execution", "zzz"}), 0, 1e-12);  // 5 of 9: not similar enough
  EXPECT_EQ(Score("anls", "ab", {"ac"}), 0);                                 // half is too little
  EXPECT_NEAR(Score("anls", "abc", {"abd"}), 2.0 / 3, 1e-12);
  EXPECT_NEAR(Score("anls", "caf\xC3\xA9", {"cafe"}), 0.75, 1e-12);  // a character, not its two bytes
  EXPECT_NEAR(Score("anls", "a  b", {"A B"}), 1, 1e-12);
  EXPECT_NEAR(Score("anls", "", {"red"}), 0, 1e-12);
  EXPECT_NEAR(Score("anls", "\xFF\xFF\xFF", {"red"}), 0, 1e-12);
}

TEST(AnswerMetricsTest, OverlapOfWords) {
  EXPECT_NEAR(Score("f1", "The red square.", {"red circle", "green"}), 0.5, 1e-12);
  EXPECT_NEAR(Score("rouge_l", "a b c d", {"a c d e", "z"}), 0.75, 1e-12);
  EXPECT_EQ(Score("rouge_l", "", {"a"}), 0);
}

TEST(AnswerMetricsTest, UnknownMetricsAndNoAnswers) {
  EXPECT_EQ(AnswerScore("bleu", "a", Texts{"a"}).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(AnswerScore("cider", "a", Texts{"a"}).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(AnswerScore("exact", "a", Texts{}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(CheckAnswerMetric("cider").ok());
  EXPECT_NE(CheckAnswerMetric("bleu").message().find("rouge_l"), std::string::npos);
}

}  // namespace
}  // namespace weir
