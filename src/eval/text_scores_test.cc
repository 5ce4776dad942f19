// SPDX-License-Identifier: Apache-2.0
// Scores of made replies against those of the published programs (tools/golden/scores.py).
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "eval/text_tasks.h"
#include "support/build_paths.h"

namespace weir {
namespace {

TEST(TextScoresTest, EqualThePublishedOnes) {
  std::ifstream file(SourceDir() + "/tests/golden/scores/published.jsonl");
  std::map<std::string, int> n;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json row = nlohmann::json::parse(line);
    const std::string metric = row["metric"];
    ++n[metric];
    const auto score =
        TextScore(metric, row["reply"].get<std::string>(), row["answers"].get<std::vector<std::string>>());
    ASSERT_TRUE(score.ok()) << score.status().message();
    // Some are published in percent with two decimals.
    EXPECT_NEAR(*score, row["score"].get<double>(), 5.1e-5) << line;
  }
  EXPECT_EQ(n.size(), 12u);
  for (const auto& [metric, n_replies] : n) EXPECT_GE(n_replies, 40) << metric;
}

TEST(TextScoresTest, RefusesWhatItDoesNotKnow) {
  const std::vector<std::string> answers = {"a"};
  EXPECT_EQ(TextScore("taste", "a", answers).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(TextScore("all", "a", {}).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir
