// SPDX-License-Identifier: Apache-2.0
// Files made in the layouts of published data sets.
#include <gtest/gtest.h>

#include "eval/helmet.h"
#include "eval/infinitebench.h"
#include "eval/longmemeval.h"
#include "eval/scbench.h"

namespace weir {
namespace {

constexpr const char* kChats = R"([
 {"question_id": "q1", "question_type": "single-session-user", "question": "What is my cat called?", "answer": "Minka",
  "question_date": "2023/05/30", "haystack_dates": ["2023/05/20", "2023/05/10"], "haystack_session_ids": ["b", "a"],
  "haystack_sessions": [[{"role": "user", "content": " Later. "}],
    [{"role": "user", "content": "My cat is called Minka.", "has_answer": true},
     {"role": "assistant", "content": "A fine name.", "has_answer": false}]], "answer_session_ids": ["a"]},
 {"question_id": "q2_abs", "question_type": "single-session-user", "question": "And my dog?", "answer": 3,
  "question_date": "2023/05/30", "haystack_dates": [], "haystack_sessions": []},
 {"question_id": "q3", "question_type": "multi-session", "question": "?", "answer": "x", "question_date": "d",
  "haystack_dates": [], "haystack_sessions": []}])";

TEST(LongMemEvalTest, SessionsInOrderAndTheirEvidence) {
  const auto tasks = ParseLongMemEval(kChats);
  ASSERT_TRUE(tasks.ok()) << tasks.status().message();
  ASSERT_EQ(tasks->size(), 3u);
  EXPECT_EQ((*tasks)[0].name, "single-session-user");
  EXPECT_EQ((*tasks)[1].name, "single-session-user_abs");
  EXPECT_EQ((*tasks)[2].name, "multi-session");
  const TextSample sample = (*tasks)[0].sample(0).value();
  EXPECT_NE(sample.context.find("### Session 1:\nSession Date: 2023/05/10\nSession Content:\n\n\nuser: My cat"),
            std::string::npos)
      << sample.context;
  EXPECT_NE(sample.context.find("### Session 2:\nSession Date: 2023/05/20\nSession Content:\n\n\nuser: Later.\n"),
            std::string::npos)
      << sample.context;
  ASSERT_EQ(sample.evidence.size(), 1u);
  const TextSpan span = sample.evidence[0];
  EXPECT_EQ(sample.context.substr(span.begin, span.end - span.begin), "\n\nuser: My cat is called Minka.");
  EXPECT_EQ(sample.questions[0].text, "\n\nCurrent Date: 2023/05/30\nQuestion: What is my cat called?\nAnswer:");
  EXPECT_EQ((*tasks)[1].sample(0).value().questions[0].answers[0], "3") << "answers may be numbers";
}

TEST(LongMemEvalTest, NamesWhatIsMissing) {
  for (const auto& [bad, word] : {std::pair{"", "layout"},
                                  {"[]", "layout"},
                                  {"[{}]", "question_id"},
                                  {R"([{"question_id": "q", "question_type": "t"}])", "`question`"},
                                  {R"([{"question_id": "q", "question_type": "t", "question": "?", "question_date": "d",
                                       "answer": "a", "haystack_dates": ["d"], "haystack_sessions": []}])",
                                   "1 `haystack_dates`"},
                                  {R"([{"question_id": "q", "question_type": "t", "question": "?", "question_date": "d",
                                       "answer": "a", "haystack_dates": ["d"], "haystack_sessions": [[{}]]}])",
                                   "`role`"}}) {
    const Status status = ParseLongMemEval(bad).status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << bad;
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
}

TEST(InfiniteBenchTest, PromptsAndAnswers) {
  const auto passkey = ParseInfiniteBench(
      "passkey",
      "{\"id\": 0, \"context\": \"Grass.\", \"input\": \"What is the pass key?\", \"answer\": [\"71432\"], "
      "\"options\": []}\n\n");
  ASSERT_TRUE(passkey.ok()) << passkey.status().message();
  EXPECT_EQ(passkey->n, 1);
  EXPECT_EQ(passkey->n_answer, 6);
  const TextSample sample = passkey->sample(0).value();
  EXPECT_TRUE(sample.context.ends_with("\n\nGrass.")) << sample.context;
  EXPECT_EQ(sample.questions[0].text + sample.questions[0].lead, "\n\nWhat is the pass key?\n\nThe pass key is");
  const auto choice = ParseInfiniteBench(
      "longbook_choice_eng",
      R"({"context": "Book.", "input": "Who?", "answer": ["Cy"], "options": ["Al", "Bo", "Cy", "Di"]})");
  ASSERT_TRUE(choice.ok()) << choice.status().message();
  const TextQuestion question = choice->sample(0).value().questions[0];
  EXPECT_EQ(question.answers, (std::vector<std::string>{"C", "Cy"}));
  EXPECT_EQ(question.text, "\n\nQuestion: Who?\nA. Al\nB. Bo\nC. Cy\nD. Di");
}

TEST(InfiniteBenchTest, NamesWhatIsMissing) {
  EXPECT_EQ(ParseInfiniteBench("longbook_sum_eng", "{}").status().code(), StatusCode::kNotFound);
  const std::string good = R"({"context": "c", "input": "i", "answer": ["a"], "options": ["a", "b", "c", "d"]})";
  for (const auto& [bad, word] :
       {std::pair{std::string(), "no samples"},
        {good + "\n7", "line 2: no text `context`"},
        {std::string(R"({"context": "c", "input": "i"})"), "`answer`"},
        {std::string(R"({"context": "c", "input": "i", "answer": ["a"], "options": ["a"]})"), "1 `options`"},
        {std::string(R"({"context": "c", "input": "i", "answer": ["x"], "options": ["a", "b", "c", "d"]})"),
         "none of"}}) {
    const Status status = ParseInfiniteBench("longbook_choice_eng", bad).status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << bad;
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  }
}

TEST(HelmetTest, ValuesAndPassages) {
  const std::string kv = R"({"context": "{...}", "question": "k", "answer": "v", "num_kvs": 9,
  "demos": [["a", "1"], ["b", "2"], ["c", "3"]]})";
  std::string line = kv;
  std::erase(line, '\n');
  const auto values = ParseHelmetKv("test_k9", line);
  ASSERT_TRUE(values.ok()) << values.status().message();
  const TextQuestion asked = values->sample(0).value().questions[0];
  EXPECT_TRUE(asked.text.ends_with("Key: a\nCorresponding value: 1\n\nKey: b\nCorresponding value: 2\n\nKey: k"))
      << asked.text;
  EXPECT_EQ(asked.lead, "\nCorresponding value:");
  const auto rag = ParseHelmetRag(
      "nq",
      R"({"question": "Who?", "answers": ["A", "B"], "ctxs": [{"title": "t", "text": "x"}, {"title": "u", "text": "y"}]})");
  ASSERT_TRUE(rag.ok()) << rag.status().message();
  const TextSample sample = rag->sample(0).value();
  EXPECT_TRUE(sample.context.ends_with("\n\nDocument (Title: t): x\n\nDocument (Title: u): y")) << sample.context;
  EXPECT_EQ(sample.questions[0].answers.size(), 2u);
  for (const char* bad : {"{}", R"({"context": "c", "question": "q", "answer": "a"})",
                          R"({"context": "c", "question": "q", "answer": "a", "demos": [["a"], ["b"]]})"}) {
    EXPECT_EQ(ParseHelmetKv("k", bad).status().code(), StatusCode::kCorrupt) << bad;
  }
  for (const char* bad : {"{}", R"({"question": "q", "answers": ["a"]})",
                          R"({"question": "q", "answers": ["a"], "ctxs": [{"title": "t"}]})"}) {
    EXPECT_EQ(ParseHelmetRag("k", bad).status().code(), StatusCode::kCorrupt) << bad;
  }
}

TEST(ScBenchTest, TurnsShareAContext) {
  const auto kv = ParseScBench("scbench_kv", R"({"id": 0, "context": "{}", "multi_turns": [
 {"input": "Key: {options}", "answer": "v1"}, {"input": "Key: b", "answer": ["v2"]}]})");
  EXPECT_EQ(kv.status().code(), StatusCode::kCorrupt) << "an object is one line";
  const auto good = ParseScBench(
      "scbench_kv",
      R"({"context": "{}", "multi_turns": [{"input": "Key: {options}", "answer": "v1"}, {"input": "b", "answer": ["v2"]}]})");
  ASSERT_TRUE(good.ok()) << good.status().message();
  const TextSample sample = good->sample(0).value();
  ASSERT_EQ(sample.questions.size(), 2u);
  EXPECT_EQ(sample.questions[0].text, "\n\nKey: {options}") << "what was put in is left alone";
  EXPECT_EQ(sample.questions[1].answers, std::vector<std::string>{"v2"});
  const auto choice = ParseScBench(
      "scbench_choice_eng",
      R"({"context": "c", "multi_turns": [{"input": "?", "answer": "b", "options": ["a", "b", "c", "d"]}]})");
  ASSERT_TRUE(choice.ok()) << choice.status().message();
  EXPECT_EQ(choice->sample(0).value().questions[0].answers, (std::vector<std::string>{"B", "b"}));
  for (const char* bad : {"{}", R"({"context": "c"})", R"({"context": "c", "multi_turns": []})",
                          R"({"context": "c", "multi_turns": [{"input": "?"}]})"}) {
    EXPECT_EQ(ParseScBench("scbench_vt", bad).status().code(), StatusCode::kCorrupt) << bad;
  }
  EXPECT_EQ(ParseScBench("scbench_repoqa", "{}").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace weir
