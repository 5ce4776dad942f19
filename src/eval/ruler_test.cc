// SPDX-License-Identifier: Apache-2.0
#include "eval/ruler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace weir {
namespace {

// Words and marks, as a tokenizer might count them.
int64_t Count(std::string_view text) {
  int64_t n = 0;
  bool in_word = false;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter && !in_word) ++n;
    if (!letter && c != ' ') ++n;
    in_word = letter;
  }
  return n;
}
const std::function<int64_t(std::string_view)> kCount = Count;

std::shared_ptr<const RulerMaterial> Material() {
  auto out = std::make_shared<RulerMaterial>();
  std::string squad = R"({"data": [)";
  std::string hotpot = "[";
  for (int article = 0; article < 4; ++article) {
    squad += std::string(article > 0 ? "," : "") + R"({"paragraphs": [)";
    for (int p = 0; p < 3; ++p) {
      const std::string n = std::to_string(article) + std::to_string(p);
      squad += std::string(p > 0 ? "," : "") + R"({"context": "Paragraph )" + n + R"( is here.", "qas": [
        {"question": "Where is )" +
               n + R"(?", "is_impossible": false, "answers": [{"text": "here"}, {"text": "in )" + n +
               R"("}]}, {"question": "Why?", "is_impossible": true, "answers": []}]})";
    }
    squad += "]}";
    hotpot += std::string(article > 0 ? "," : "") + R"({"question": "Who?", "answer": "Nobody", "context": [)";
    for (int d = 0; d < 10; ++d) {
      hotpot += std::string(d > 0 ? "," : "") + R"(["Title )" + std::to_string(article) + std::to_string(d) +
                R"(", ["One. ", "Two."]])";
    }
    hotpot += "]}";
  }
  out->squad = std::make_shared<RulerDocuments>(ParseSquad(squad + "]}").value());
  out->hotpot = std::make_shared<RulerDocuments>(ParseHotpot(hotpot + "]").value());
  return out;
}

TextTask Make(const std::string& name, int64_t length, uint64_t seed = 0) {
  auto task = MakeRulerTask(name, length, 5, seed, Material(), kCount);
  EXPECT_TRUE(task.ok()) << name << ": " << task.status().message();
  return std::move(task).value();
}

std::string Whole(const TextSample& sample) {
  return sample.context + sample.questions[0].text + sample.questions[0].lead;
}

TEST(RulerTest, SamplesFillTheLengthAndNoMore) {
  ASSERT_EQ(RulerTaskNames().size(), 13u);
  for (const std::string& name : RulerTaskNames()) {
    for (const int64_t length : {2048, 8192}) {
      SCOPED_TRACE(name + " " + std::to_string(length));
      const TextTask task = Make(name, length);
      EXPECT_EQ(task.metric, name.starts_with("qa_") ? "part" : "all");
      for (int64_t i = 0; i < task.n; ++i) {
        const TextSample sample = task.sample(i).value();
        const int64_t n = Count(Whole(sample)) + task.n_answer;
        EXPECT_LE(n, length);
        EXPECT_GE(n, length * 4 / 5);
        ASSERT_EQ(sample.questions.size(), 1u);
        EXPECT_FALSE(sample.questions[0].answers.empty());
        EXPECT_EQ(Whole(sample), Whole(task.sample(i).value())) << "the same each time";
      }
      EXPECT_NE(Whole(task.sample(0).value()), Whole(task.sample(1).value()));
      EXPECT_NE(Whole(task.sample(0).value()), Whole(Make(name, length, 1).sample(0).value())) << "another seed";
    }
  }
}

// What is asked for is in the text: values beside their keys.
TEST(RulerTest, NeedlesAreInTheHaystack) {
  const std::map<std::string, size_t> n_answers = {
      {"niah_single_1", 1},   {"niah_single_2", 1},   {"niah_single_3", 1},   {"niah_multikey_1", 1},
      {"niah_multikey_2", 1}, {"niah_multikey_3", 1}, {"niah_multivalue", 4}, {"niah_multiquery", 4}};
  for (const auto& [name, n] : n_answers) {
    const TextSample sample = Make(name, 2048).sample(2).value();
    ASSERT_EQ(sample.questions[0].answers.size(), n) << name;
    for (const std::string& answer : sample.questions[0].answers) {
      EXPECT_NE(sample.context.find(" is: " + answer + "."), std::string::npos) << name;
      EXPECT_EQ(sample.questions[0].text.find(answer), std::string::npos) << name;
    }
    const std::string& asked = sample.questions[0].text;
    EXPECT_EQ(asked.starts_with(n == 1 ? "\nWhat is the special magic " : "\nWhat are all the special magic "), true);
    EXPECT_EQ(sample.context.starts_with(n == 1 ? "A special magic " : "Some special magic "), true);
  }
  const std::regex uuid("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}");
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(std::regex_match(Make("niah_single_3", 2048).sample(i).value().questions[0].answers[0], uuid));
  }
}

// Following the assignments from the value that is asked for leads to the answers.
TEST(RulerTest, ChainsLeadToTheAnswers) {
  const TextSample sample = Make("vt", 2048).sample(1).value();
  const std::string text = sample.context.substr(sample.context.rfind("Memorize and track"));
  const std::string& asked = sample.questions[0].text;
  const size_t at = asked.find("the value ") + 10;
  std::string value = asked.substr(at, 5);
  std::vector<std::string> names;
  for (const std::regex step("VAR ([A-Z]+) = (VAR )?([A-Z0-9]+)"); names.size() < 10;) {
    bool found = false;
    for (std::sregex_iterator m(text.begin(), text.end(), step), end; m != end; ++m) {
      if ((*m)[3] != value) continue;
      value = (*m)[1];
      names.push_back(value);
      found = true;
      break;
    }
    if (!found) break;
  }
  EXPECT_EQ(names, sample.questions[0].answers);
  EXPECT_NE(sample.questions[0].lead.find("5 variables"), std::string::npos);
}

TEST(RulerTest, CommonAndFrequentWordsAreCounted) {
  const auto count = [](const std::string& text) {
    std::map<std::string, int> n;
    std::istringstream words(text);
    for (std::string word; words >> word;) ++n[word];
    return n;
  };
  for (const int64_t length : {2048, 4096}) {
    const TextSample common = Make("cwe", length).sample(0).value();
    auto n = count(common.context.substr(common.context.rfind("Below is")));
    for (const std::string& answer : common.questions[0].answers)
      EXPECT_EQ(n[answer], length < 4096 ? 6 : 30) << answer;
    EXPECT_EQ(common.questions[0].answers.size(), 10u);
  }
  const TextSample frequent = Make("fwe", 4096).sample(0).value();
  auto n = count(frequent.context);
  const std::vector<std::string>& answers = frequent.questions[0].answers;
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_GT(n["..."], n[answers[0]]);
  EXPECT_GT(n[answers[0]], n[answers[1]]);
  EXPECT_GT(n[answers[1]], n[answers[2]]);
}

TEST(RulerTest, DocumentsOfAQuestionAreShown) {
  for (int64_t i = 0; i < 5; ++i) {
    const TextSample squad = Make("qa_1", 1024).sample(i).value();
    const std::string n = squad.questions[0].answers[1].substr(3);
    EXPECT_NE(squad.context.find("Paragraph " + n + " is here."), std::string::npos);
    EXPECT_EQ(squad.questions[0].lead, " Answer:");
  }
  EXPECT_NE(Make("qa_2", 1024).sample(1).value().context.find("Document 10:\nTitle "), std::string::npos);
}

TEST(RulerTest, RefusesInOneLine) {
  const auto material = std::make_shared<RulerMaterial>();
  EXPECT_EQ(MakeRulerTask("niah_single_9", 4096, 1, 0, material, kCount).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(MakeRulerTask("qa_1", 4096, 1, 0, material, kCount).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeRulerTask("cwe", 300, 1, 0, material, kCount).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeRulerTask("fwe", 100, 1, 0, material, kCount).status().code(), StatusCode::kInvalidArgument);
  for (const char* bad : {"", "[]", "{}", R"({"data": [{}]})", R"({"data": [{"paragraphs": [{"context": "c"}]}]})",
                          R"({"data": [{"paragraphs": [{"context": "c", "qas": [{}]}]}]})"}) {
    EXPECT_EQ(ParseSquad(bad).status().code(), StatusCode::kCorrupt) << bad;
  }
  for (const char* bad : {"", "{}", "[]", "[{}]", R"([{"question": "q", "answer": "a", "context": [["t"]]}])",
                          R"([{"question": "q", "answer": "a", "context": [["t", [1]]]}])"}) {
    EXPECT_EQ(ParseHotpot(bad).status().code(), StatusCode::kCorrupt) << bad;
  }
}

}  // namespace
}  // namespace weir
