// SPDX-License-Identifier: Apache-2.0
// Expected figures are worked out by hand from the definitions.
#include "eval/longbench_metrics.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weir {
namespace {

TEST(LongBenchMetricsTest, QaF1) {
  EXPECT_DOUBLE_EQ(QaF1("The Whale!", "whale"), 1);
  // {white, whale} and {white, whale, of, nantucket}: precision 1, recall 1/2.
  EXPECT_DOUBLE_EQ(QaF1("a white whale", "the white whale of Nantucket."), 2.0 / 3);
  // A repeated word counts as often as both have it: common 1, precision 1/3, recall 1/1.
  EXPECT_DOUBLE_EQ(QaF1("yes yes yes", "yes"), 0.5);
  EXPECT_DOUBLE_EQ(QaF1("", "yes"), 0);
  EXPECT_DOUBLE_EQ(QaF1("the", "a"), 0);
  // Punctuation is removed, not made a space.
  EXPECT_DOUBLE_EQ(QaF1("twenty-one", "twentyone"), 1);
  EXPECT_DOUBLE_EQ(QaF1("theatre", "atre"), 0);
}

TEST(LongBenchMetricsTest, RougeL) {
  EXPECT_DOUBLE_EQ(RougeL("a b c d", "a b c d"), 1);
  // Subsequence a c d: precision 3/4, recall 3/5.
  EXPECT_DOUBLE_EQ(RougeL("a x c d", "a b c e d"), 2 * 0.75 * 0.6 / 1.35);
  // Order matters: the longest common subsequence of these is one word.
  EXPECT_DOUBLE_EQ(RougeL("c b a", "a b c"), 1.0 / 3);
  EXPECT_DOUBLE_EQ(RougeL("A", "a"), 0);
  EXPECT_DOUBLE_EQ(RougeL("", ""), 0);
}

TEST(LongBenchMetricsTest, RetrievalAndCount) {
  EXPECT_DOUBLE_EQ(IntegerShare("Paragraph 19", "Paragraph 19"), 1);
  EXPECT_DOUBLE_EQ(IntegerShare("Paragraph 19 or 3, not 4; 19", "Paragraph 19"), 0.5);
  EXPECT_DOUBLE_EQ(IntegerShare("段落5", "段落5"), 1);
  EXPECT_DOUBLE_EQ(IntegerShare("Paragraph 190", "Paragraph 19"), 0);
  EXPECT_DOUBLE_EQ(IntegerShare("none", "7"), 0);
  EXPECT_DOUBLE_EQ(IntegerShare("99999999999999999999 7", "7"), 0.5);
}

TEST(LongBenchMetricsTest, Classes) {
  const std::vector<std::string> classes = {"city", "city or state", "number", "person"};
  EXPECT_DOUBLE_EQ(ClassShare("It is a number.", "number", classes), 1);
  EXPECT_DOUBLE_EQ(ClassShare("a number or a person", "number", classes), 0.5);
  EXPECT_DOUBLE_EQ(ClassShare("city or state", "city or state", classes), 1) << "part of the gold answer";
  EXPECT_DOUBLE_EQ(ClassShare("city or state", "city", classes), 0.5);
  EXPECT_DOUBLE_EQ(ClassShare("Number", "number", classes), 0) << "case counts";
  const std::vector<std::string> golds = {"person"};
  EXPECT_DOUBLE_EQ(*LongBenchScore("classification", "person", golds, classes), 1);
  EXPECT_EQ(LongBenchScore("classification", "person", golds).status().code(), StatusCode::kInvalidArgument);
}

TEST(LongBenchMetricsTest, Code) {
  EXPECT_DOUBLE_EQ(CodeSimilarity("return x", "return x"), 1);
  // The common subsequence of abcd and abxd has three characters: 2 * 3 / 8.
  EXPECT_DOUBLE_EQ(CodeSimilarity("abcd", "abxd"), 0.75);
  // Rounded as published: 2 * 2 / 6 is 0.67.
  EXPECT_DOUBLE_EQ(CodeSimilarity("ab", "abcd"), 0.67);
  // Comments and fences are skipped, and so are line ends before the first line; what follows does not count.
  EXPECT_DOUBLE_EQ(CodeSimilarity("\n\n```python\n# first\nx = 1 // 2\nreturn x\nother", "return x"), 1);
  EXPECT_DOUBLE_EQ(CodeSimilarity("# only a comment", "return x"), 0);
  EXPECT_DOUBLE_EQ(*LongBenchScore("code_sim", "abcd", std::vector<std::string>{"abxd"}), 0.75);
}

TEST(LongBenchMetricsTest, TheBestAnswerCounts) {
  const std::vector<std::string> golds = {"no", "white whale"};
  const Result<double> best = LongBenchScore("qa_f1", "white whale", golds);
  ASSERT_TRUE(best.ok());
  EXPECT_DOUBLE_EQ(*best, 1);
  EXPECT_EQ(LongBenchScore("rouge_zh", "x", golds).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(LongBenchScore("rouge", "x", {}).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir
