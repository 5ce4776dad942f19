// weir-plugin: suite
// SPDX-License-Identifier: Apache-2.0
// weir eval longbench: published long prompts, answers scored by each task's metric.
#include <algorithm>
#include <map>

#include "eval/longbench.h"
#include "suites/exam.h"
#include "suites/suite.h"

namespace weir::app {
namespace {

struct LongBenchFlags {
  EvalFlags eval;
  LongBenchOptions options;
  std::string file;
};

Result<Exam> MakeExam(const LongBenchFlags& flags, const LoadedModel& model) {
  constexpr int64_t kMaxFileBytes = int64_t{1} << 30;
  WEIR_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.file, kMaxFileBytes));
  auto samples = ParseLongBench(text);
  if (!samples.ok()) return Corrupt("{}: {}", flags.file, samples.status().message());
  LongBenchOptions options = flags.options;
  options.n = flags.eval.n;
  int32_t longest_answer = 0;
  Exam exam{.suite = "longbench"};
  std::map<std::string, int32_t> n_of_task;
  const auto& wanted = options.datasets;
  for (const LongBenchSample& sample : *samples) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), sample.dataset) == wanted.end()) continue;
    if (++n_of_task[sample.dataset] > options.n) continue;
    ++exam.n_questions;
    int64_t n_tokens = static_cast<int64_t>(model.tokenizer().Encode(sample.prompt).size());
    if (options.max_tokens > 0) n_tokens = std::min(n_tokens, options.max_tokens);
    exam.read_tokens += n_tokens;
    exam.longest_tokens = std::max(exam.longest_tokens, n_tokens);
    longest_answer = std::max(longest_answer, sample.max_new_tokens);
  }
  if (options.max_answer > 0) longest_answer = std::min(longest_answer, options.max_answer);
  exam.n_answer = longest_answer;
  exam.n_expected = static_cast<int32_t>(kLongBenchQuestion);
  exam.longest_tokens += longest_answer + 256;
  exam.run = [options, samples = std::move(*samples)](Examinee& asked, Examinee& plain, const SuiteHooks& hooks) {
    return RunLongBench(plain, asked, samples, options, hooks);
  };
  return exam;
}

Action AddLongBench(CLI::App& sub) {
  auto flags = std::make_shared<LongBenchFlags>();
  AddRunFlags(sub, &flags->eval);
  flags->eval.prompt = "chat";  // published prompts are instructions
  AddExamFlags(sub, &flags->eval, 1000);
  sub.remove_option(sub.get_option("--gold-nll"));  // these answers have no one form
  sub.add_option("-f,--file", flags->file, "samples: JSON lines with dataset, metric, prompt, answers, max_new_tokens")
      ->required()
      ->type_name("FILE");
  sub.add_option("--task", flags->options.datasets, "only these tasks")->delimiter(',')->type_name("NAME,...");
  sub.add_option("--max-tokens", flags->options.max_tokens,
                 "cut the middle out of longer prompts, as published; 0 = no limit: the pot takes the whole prompt")
      ->check(Between(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  sub.add_option("--max-answer", flags->options.max_answer,
                 "maximum answer length in tokens, if shorter than published; 0 = as published")
      ->check(Between(0, 4096))
      ->capture_default_str();
  return [=] { return RunExam(flags->eval, [&](const LoadedModel& model) { return MakeExam(*flags, model); }); };
}

}  // namespace

extern const SuiteInfo kLongbench;
const SuiteInfo kLongbench = {.name = "longbench", .summary = "LongBench prompts from a file", .add = AddLongBench};

}  // namespace weir::app
