// SPDX-License-Identifier: Apache-2.0
#include "eval/lines.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "eval/lines_suite.h"
#include "eval/words.h"

namespace weir {
namespace {

TEST(WordsTest, AreDistinctLowerCaseWords) {
  for (const auto words : {Nouns(), Adjectives(), People()}) {
    EXPECT_GT(words.size(), 90u);
    EXPECT_EQ(std::set<std::string_view>(words.begin(), words.end()).size(), words.size());
    for (const std::string_view word : words) {
      EXPECT_FALSE(word.empty());
      EXPECT_EQ(word.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), std::string_view::npos) << word;
    }
  }
}

// Values computed independently from the sources of xoshiro256** and splitmix64.
TEST(LineSourceTest, ASeedMeansTheSameEverywhere) {
  LineSource numbers(LineKeys::kNumber, 7);
  for (const auto& [key, value] : {std::pair{"1", 35029}, {"2", 13938}, {"3", 41982}}) {
    const Line line = numbers.Next();
    EXPECT_EQ(line.key, key);
    EXPECT_EQ(line.value, value);
  }
  LineSource words(LineKeys::kWord, 7);
  for (const auto& [key, value] : {std::pair{"napkin", 43371}, {"pony", 32611}, {"butter", 49377}}) {
    const Line line = words.Next();
    EXPECT_EQ(line.key, key);
    EXPECT_EQ(line.value, value);
  }
}

TEST(LineSourceTest, NamesComeAgainOnlyAfterHalfOfThem) {
  LineSource source(LineKeys::kWord, 3);
  const int64_t n = source.n_keys();
  std::map<std::string, int64_t> last;
  std::vector<std::string> first_turn, second_turn;
  for (int64_t i = 0; i < 5 * n; ++i) {
    const Line line = source.Next();
    EXPECT_GE(line.value, 1);
    EXPECT_LE(line.value, kMaxLineValue);
    if (const auto at = last.find(line.key); at != last.end()) EXPECT_GE(i - at->second, n / 2) << line.key;
    last[line.key] = i;
    if (i < n) first_turn.push_back(line.key);
    if (i >= n && i < 2 * n) second_turn.push_back(line.key);
  }
  EXPECT_EQ(static_cast<int64_t>(last.size()), n);
  EXPECT_NE(first_turn, second_turn);
}

TEST(LinesTest, TextsAndQuestions) {
  const Line line{"12", 48213};
  EXPECT_EQ(LineText(LineFormat::kRegister, line), "The REGISTER_CONTENT in line 12 is <48213>\n");
  EXPECT_EQ(LineText(LineFormat::kLongEval, line), "line 12: REGISTER_CONTENT is <48213>\n");
  EXPECT_EQ(LineText(LineFormat::kPlain, line), "12: 48213\n");
  for (const LineFormat format : {LineFormat::kRegister, LineFormat::kLongEval, LineFormat::kPlain}) {
    // A name that is the value itself must not confuse where the answer begins.
    for (const Line& one : {line, Line{"48213", 48213}, Line{"7", 7}}) {
      const Question question = LineQuestion(format, one);
      EXPECT_EQ(LineText(format, one).rfind(question.completion + question.gold, 0), 0u);
      EXPECT_EQ(question.gold.substr(question.gold.find_first_not_of(' ')), std::to_string(one.value));
      EXPECT_NE(question.chat.find("line " + one.key), std::string::npos);
    }
  }
}

TEST(LinesTest, PromptsHaveTheirLinesAndATarget) {
  std::set<int32_t> targets;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const LinesPrompt prompt = MakeLinesPrompt(LineKeys::kPair, 6, seed);
    ASSERT_EQ(prompt.lines.size(), 6u);
    ASSERT_TRUE(prompt.target >= 0 && prompt.target < 6);
    targets.insert(prompt.target);
    std::set<std::string> names;
    for (const Line& line : prompt.lines) names.insert(line.key);
    EXPECT_EQ(names.size(), 6u);
  }
  EXPECT_EQ(targets.size(), 6u);
}

TEST(LinesTest, PublishedCases) {
  const auto cases = ParseLinesCases(
      "{\"prompt\": \"line a\", \"expected_number\": 5, \"num_lines\": 200}\n\n{\"prompt\": \"b\", "
      "\"expected_number\": 7}");
  ASSERT_TRUE(cases.ok()) << cases.status().message();
  ASSERT_EQ(cases->size(), 2u);
  EXPECT_EQ((*cases)[0].expected, 5);
  EXPECT_EQ((*cases)[0].n_lines, 200);
  EXPECT_EQ((*cases)[1].n_lines, 0);
  for (const char* bad :
       {"", "{", "[]", "{\"prompt\": 1, \"expected_number\": 5}", "{\"prompt\": \"a\"}",
        "{\"prompt\": \"a\", \"expected_number\": \"5\"}", "{\"prompt\": \"a\", \"expected_number\": 1.5}"}) {
    EXPECT_EQ(ParseLinesCases(bad).status().code(), StatusCode::kCorrupt) << bad;
  }
}

TEST(LinesTest, OptionsAreChecked) {
  LinesOptions options;
  EXPECT_TRUE(CheckLinesOptions(options, true).ok());
  options.distances = {0};
  EXPECT_FALSE(CheckLinesOptions(options, true).ok());
  options.distances = {static_cast<int32_t>(Nouns().size())};
  EXPECT_FALSE(CheckLinesOptions(options, true).ok());
  options.keys = LineKeys::kNumber;
  EXPECT_TRUE(CheckLinesOptions(options, true).ok());
  options.n = 0;
  EXPECT_FALSE(CheckLinesOptions(options, true).ok());
}

}  // namespace
}  // namespace weir
