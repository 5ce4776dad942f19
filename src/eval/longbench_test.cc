// SPDX-License-Identifier: Apache-2.0
#include "eval/longbench.h"

#include <gtest/gtest.h>

#include <numeric>

namespace weir {
namespace {

TEST(LongBenchTest, ParsesSamples) {
  const auto samples = ParseLongBench(
      R"({"dataset": "qasper", "metric": "qa_f1", "prompt": "p", "answers": ["a", "b"], "max_new_tokens": 128, "id": 1})");
  ASSERT_TRUE(samples.ok()) << samples.status().message();
  ASSERT_EQ(samples->size(), 1u);
  EXPECT_EQ((*samples)[0].answers.size(), 2u);
  EXPECT_EQ((*samples)[0].max_new_tokens, 128);
  EXPECT_TRUE((*samples)[0].all_classes.empty());
  const auto classed = ParseLongBench(
      R"({"dataset": "trec", "metric": "classification", "prompt": "p", "answers": ["a"], "max_new_tokens": 64, "all_classes": ["a", "b"]})");
  ASSERT_TRUE(classed.ok());
  EXPECT_EQ((*classed)[0].all_classes, (std::vector<std::string>{"a", "b"}));
  for (const char* bad :
       {"", "{}", "7", R"({"dataset": "d", "metric": "m", "prompt": "p", "answers": "a", "max_new_tokens": 1})",
        R"({"dataset": "d", "metric": "m", "prompt": "p", "answers": [], "max_new_tokens": 1})",
        R"({"dataset": "d", "metric": "m", "prompt": "p", "answers": [1], "max_new_tokens": 1})",
        R"({"dataset": "d", "metric": "m", "prompt": "p", "answers": ["a"], "max_new_tokens": 0})",
        R"({"dataset": "d", "metric": "m", "prompt": "p", "answers": ["a"], "max_new_tokens": 99999999999})"}) {
    EXPECT_EQ(ParseLongBench(bad).status().code(), StatusCode::kCorrupt) << bad;
  }
}

TEST(LongBenchTest, LongPromptsLoseTheirMiddle) {
  std::vector<int32_t> tokens(10);
  std::iota(tokens.begin(), tokens.end(), 0);
  std::vector<int32_t> cut = tokens;
  CutMiddle(&cut, 4);
  EXPECT_EQ(cut, (std::vector<int32_t>{0, 1, 8, 9}));
  cut = tokens;
  CutMiddle(&cut, 5);  // an odd limit keeps two halves of two, as published
  EXPECT_EQ(cut, (std::vector<int32_t>{0, 1, 8, 9}));
  for (const int64_t enough : {0, 10, 11}) {
    cut = tokens;
    CutMiddle(&cut, enough);
    EXPECT_EQ(cut, tokens);
  }
}

TEST(LongBenchTest, TasksThatAreNeverChats) {
  EXPECT_TRUE(IsCompletionTask("trec"));
  EXPECT_TRUE(IsCompletionTask("repobench-p"));
  EXPECT_FALSE(IsCompletionTask("qasper"));
  EXPECT_TRUE(IsFewShotTask("trec"));
  EXPECT_FALSE(IsFewShotTask("lcc")) << "code may begin with a comment";
}

}  // namespace
}  // namespace weir
