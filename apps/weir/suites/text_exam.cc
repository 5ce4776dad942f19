// SPDX-License-Identifier: Apache-2.0
#include "suites/text_exam.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "suites/resume.h"

namespace weir::app {

void AddTextExamFlags(CLI::App& sub, TextExamFlags* flags, int limit, const char* data) {
  AddRunFlags(sub, &flags->eval);
  AddExamFlags(sub, &flags->eval, 1);
  for (const char* name : {"--n", "--gold-nll"}) sub.remove_option(sub.get_option(name));
  flags->eval.gold_nll = false;  // these answers have no one form
  flags->limit = limit;
  sub.add_option("--limit", flags->limit, "samples of each task, the first ones; 0 = all")
      ->check(Between(0, 1 << 24))
      ->capture_default_str();
  sub.add_option("--task", flags->tasks, "only these tasks")->delimiter(',')->type_name("NAME,...");
  sub.add_option("--answer", flags->n_answer,
                 "maximum answer length in tokens, if shorter than published; 0 = as published")
      ->check(Between(0, 1 << 12))
      ->capture_default_str();
  sub.add_option("--resume", flags->resume,
                 "rows of an earlier, interrupted run; what is complete there is not run again")
      ->type_name("ROWS.jsonl");
  sub.add_flag("!--no-truncation", flags->truncation,
               "leave out the baseline: for each pot, prompts whose middle is cut out to fit it");
  if (data != nullptr) sub.add_option("-d,--data", flags->data, data)->required()->type_name("FOLDER");
}

bool Wants(const TextExamFlags& flags, const std::string& task) {
  return flags.tasks.empty() || std::ranges::find(flags.tasks, task) != flags.tasks.end();
}

Result<std::vector<TextTask>> ReadTaskFiles(const TextExamFlags& flags, const char* set,
                                            const std::vector<std::string>& names,
                                            Result<TextTask> (*parse)(const std::string& name, std::string_view text)) {
  constexpr int64_t kMaxFileBytes = int64_t{1} << 30;
  std::vector<TextTask> tasks;
  for (const std::string& name : flags.tasks.empty() ? names : flags.tasks) {
    if (std::ranges::find(names, name) == names.end()) {
      return NotFound("{} has no task '{}' that is scored by comparing", set, name);
    }
    const std::string path = flags.data + "/" + name + ".jsonl";
    std::error_code error;
    if (flags.tasks.empty() && !std::filesystem::exists(path, error)) continue;
    WEIR_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxFileBytes));
    Result<TextTask> task = parse(name, text);
    if (!task.ok()) return Corrupt("{}: {}", path, task.status().message());
    tasks.push_back(std::move(*task));
  }
  if (tasks.empty()) return NotFound("{} has no file of {}, such as {}.jsonl", flags.data, set, names.front());
  return tasks;
}

Result<TextExam> MeasureTextExam(std::vector<TextTask> tasks, const TextExamFlags& flags, const LoadedModel& model) {
  TextExam out;
  for (TextTask& task : tasks) {
    if (!Wants(flags, task.name)) continue;
    if (flags.limit > 0) task.n = std::min<int64_t>(task.n, flags.limit);
    for (int64_t i = 0; i < task.n; ++i) {
      WEIR_ASSIGN_OR_RETURN(const TextSample sample, task.sample(i));
      int64_t n_tokens = std::ssize(model.tokenizer().Encode(sample.context));
      for (const TextQuestion& question : sample.questions) {
        n_tokens += std::ssize(model.tokenizer().Encode(question.text + question.lead));
      }
      out.read_tokens += n_tokens;
      out.longest_tokens = std::max(out.longest_tokens, n_tokens);
    }
    out.tasks.push_back(std::move(task));
  }
  for (const std::string& name : flags.tasks) {
    if (std::ranges::find(out.tasks, name, &TextTask::name) == out.tasks.end()) {
      return InvalidArgument("--task: the files have no task '{}'", name);
    }
  }
  return out;
}

Status RunTextExam(const char* suite, const TextExamFlags& flags,
                   const std::function<Result<TextExam>(const LoadedModel&)>& make) {
  return RunExam(flags.eval, [&](const LoadedModel& model) -> Result<Exam> {
    Exam exam{.suite = suite};
    WEIR_ASSIGN_OR_RETURN(exam.finished, FinishedRows(flags.resume, kExamKeys));
    WEIR_ASSIGN_OR_RETURN(TextExam made, make(model));
    for (TextTask& task : made.tasks) {
      if (flags.n_answer > 0) task.n_answer = std::min(task.n_answer, flags.n_answer);
      if (flags.limit > 0) task.n = std::min<int64_t>(task.n, flags.limit);
      task.numbers.emplace_back("limit", flags.limit);
      exam.n_questions += task.n;
      exam.n_answer = std::max(exam.n_answer, task.n_answer);
    }
    std::erase_if(made.tasks, [](const TextTask& task) { return task.n == 0; });
    if (made.tasks.empty()) return InvalidArgument("no sample is left to ask");
    constexpr int64_t kMargin = 256;
    exam.longest_tokens = made.longest_tokens + exam.n_answer + kMargin;
    exam.read_tokens = made.read_tokens;
    exam.n_expected = 256;
    const std::filesystem::path data = flags.data;
    exam.data = (data.has_filename() ? data : data.parent_path()).filename().string();
    exam.run = [tasks = made.tasks](Examinee& asked, Examinee&, const SuiteHooks& hooks) {
      return RunTextTasks(asked, tasks, {}, hooks);
    };
    if (flags.truncation) {
      exam.run_cut = [tasks = std::move(made.tasks)](Examinee& asked, int64_t cut, const SuiteHooks& hooks) {
        return RunTextTasks(asked, tasks, {.cut = cut}, hooks);
      };
    }
    return exam;
  });
}

}  // namespace weir::app
