// SPDX-License-Identifier: Apache-2.0
#include "eval/infinitebench.h"

#include <algorithm>
#include <utility>

#include "eval/json_rows.h"

namespace weir {
namespace {

using nlohmann::json;

struct TaskInfo {
  const char *name, *metric;
  int32_t n_answer;
  const char *before, *behind, *lead;  // around the context; {input} is the question, {options} a line for each option
};

constexpr TaskInfo kTasks[] = {
    {"passkey", "first_number", 6,
     "There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. I will quiz you "
     "about "
     "the important information.\n\n",
     "\n\n{input}", "\n\nThe pass key is"},
    {"number_string", "first_number", 12,
     "There is an important info hidden inside a lot of irrelevant text. Find it. I will quiz you about the important "
     "information there.\n\n",
     "\n\n{input}", "\n\nThe sequence of digits is"},
    {"kv_retrieval", "word", 50, "Extract the value corresponding to the specified key in the JSON object below.\n\n",
     "\n\n{input}", ""},
    {"longbook_choice_eng", "book_choice", 40, "Read the book and answer the question.\n\n",
     "\n\nQuestion: {input}{options}", "\n\nThe letter of the correct answer is"},
    {"longbook_qa_eng", "qa_f1", 40, "Read the book and answer the question. Be very concise in your answer.\n\n",
     "\n\nQuestion: {input}", "\nAnswer:"},
    {"longdialogue_qa_eng", "upper_word", 40,
     "Below is a dialogue script where one random occurrence of a character name is replaced with \"$$MASK$$\", and "
     "you "
     "should try to guess who that character is.\n\n",
     "", "\n\nThe name that has been replaced with $$MASK$$ is likely"},
};

Result<TextSample> ToSample(const TaskInfo& task, const json& row) {
  TextSample out;
  WEIR_ASSIGN_OR_RETURN(out.context, TextOf(row, "context"));
  out.context.insert(0, task.before);
  TextQuestion question;
  WEIR_ASSIGN_OR_RETURN(const std::string input, TextOf(row, "input"));
  question.answers = TextsOf(row, "answer");
  if (question.answers.empty()) return Corrupt("no `answer`");
  const std::vector<std::string> options = TextsOf(row, "options");
  if (std::string_view(task.metric) == "book_choice") {
    WEIR_ASSIGN_OR_RETURN(question.answers, RightOption(options, question.answers.front()));
  }
  question.text = Filled(task.behind, {{"{input}", input}, {"{options}", Lettered(options)}});
  question.lead = task.lead;
  out.questions = {std::move(question)};
  return out;
}

}  // namespace

std::vector<std::string> InfiniteBenchTasks() {
  std::vector<std::string> out;
  for (const TaskInfo& task : kTasks) out.emplace_back(task.name);
  return out;
}

Result<TextTask> ParseInfiniteBench(const std::string& name, std::string_view jsonl) {
  const auto task = std::ranges::find_if(kTasks, [&](const TaskInfo& one) { return name == one.name; });
  if (task == std::end(kTasks)) return NotFound("no task '{}' that is scored by comparing", name);
  WEIR_ASSIGN_OR_RETURN(std::vector<TextSample> samples,
                        SamplesOf(jsonl, [&](const json& row) { return ToSample(*task, row); }));
  return TaskOf(name, task->metric, task->n_answer, std::move(samples));
}

}  // namespace weir
