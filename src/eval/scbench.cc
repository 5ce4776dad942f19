// SPDX-License-Identifier: Apache-2.0
#include "eval/scbench.h"

#include <algorithm>
#include <utility>

#include "eval/json_rows.h"

namespace weir {
namespace {

using nlohmann::json;

struct TaskInfo {
  const char *name, *metric;
  int32_t n_answer;
  const char *before, *question;  // before the context; {input} and {options} of a turn
};

constexpr const char *kValue = "Extract the value corresponding to the specified key in the JSON object below.\n\n",
                     *kInput = "\n\n{input}";
constexpr TaskInfo kTasks[] = {
    {"scbench_kv", "contains", 150, kValue, kInput},
    {"scbench_kv_hard", "contains", 150, kValue, kInput},
    {"scbench_kv_compressible", "contains", 150,
     "Extract the value corresponding to the specified key in the following passage.\n\n", kInput},
    {"scbench_prefix_suffix", "contains", 150, "", kInput},
    {"scbench_hashhop", "contains", 150, "", kInput},
    {"scbench_vt", "all", 30, "", kInput},
    {"scbench_passkey", "first_number", 15,
     "There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. I will quiz you "
     "about "
     "the important information.\n\n",
     kInput},
    {"scbench_choice_eng", "book_choice", 40, "Read the book and answer the question.\n\n",
     "\n\nQuestion: {input}{options}\n\nThe the correct answer is"},
    {"scbench_qa_eng", "upper_word", 40, "Read the book and answer the question. Be very concise in your answer.\n\n",
     "\n\nQuestion: {input}\nAnswer:"},
    {"scbench_many_shot", "upper_word", 10, "", kInput},
};

Result<TextSample> ToSample(const TaskInfo& task, const json& row) {
  TextSample out;
  WEIR_ASSIGN_OR_RETURN(out.context, TextOf(row, "context"));
  out.context.insert(0, task.before);
  if (!row.contains("multi_turns") || !row["multi_turns"].is_array() || row["multi_turns"].empty()) {
    return Corrupt("no list `multi_turns`");
  }
  for (const json& turn : row["multi_turns"]) {
    TextQuestion question;
    WEIR_ASSIGN_OR_RETURN(const std::string input, TextOf(turn, "input"));
    question.answers = TextsOf(turn, "answer");
    if (question.answers.empty()) return Corrupt("a turn without `answer`");
    const std::vector<std::string> options = TextsOf(turn, "options");
    if (std::string_view(task.metric) == "book_choice") {
      WEIR_ASSIGN_OR_RETURN(question.answers, RightOption(options, question.answers.front()));
    }
    question.text = Filled(task.question, {{"{input}", input}, {"{options}", Lettered(options)}});
    out.questions.push_back(std::move(question));
  }
  return out;
}

}  // namespace

std::vector<std::string> ScBenchTasks() {
  std::vector<std::string> out;
  for (const TaskInfo& task : kTasks) out.emplace_back(task.name);
  return out;
}

Result<TextTask> ParseScBench(const std::string& name, std::string_view jsonl) {
  const auto task = std::ranges::find_if(kTasks, [&](const TaskInfo& one) { return name == one.name; });
  if (task == std::end(kTasks)) return NotFound("no task '{}' that is scored by comparing", name);
  WEIR_ASSIGN_OR_RETURN(std::vector<TextSample> samples,
                        SamplesOf(jsonl, [&](const json& row) { return ToSample(*task, row); }));
  return TaskOf(name, task->metric, task->n_answer, std::move(samples));
}

}  // namespace weir
