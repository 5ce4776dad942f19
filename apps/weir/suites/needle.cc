// weir-plugin: suite
// SPDX-License-Identifier: Apache-2.0
// weir eval needle: sentences hidden in a text.
#include <algorithm>

#include "eval/needle.h"
#include "suites/exam.h"
#include "suites/suite.h"

namespace weir::app {
namespace {

struct NeedleFlags {
  EvalFlags eval;
  NeedleOptions options;
  std::string file, needles;
};

Result<Exam> MakeExam(const NeedleFlags& flags) {
  constexpr int64_t kMaxTextBytes = int64_t{1} << 30, kMaxNeedleBytes = int64_t{1} << 24;
  NeedleOptions options = flags.options;
  options.n = flags.eval.n;
  options.seed = flags.eval.seed;
  options.needles = DefaultNeedles();
  if (!flags.needles.empty()) {
    WEIR_ASSIGN_OR_RETURN(const std::string json, ReadTextFile(flags.needles, kMaxNeedleBytes));
    auto needles = ParseNeedles(json);
    if (!needles.ok()) return Corrupt("{}: {}", flags.needles, needles.status().message());
    options.needles = std::move(*needles);
  }
  auto text = std::make_shared<std::string>();
  if (!flags.file.empty()) {
    WEIR_ASSIGN_OR_RETURN(*text, ReadTextFile(flags.file, kMaxTextBytes));
    if (text->empty()) return InvalidArgument("{} contains no text", flags.file);
  }
  options.haystack = *text;
  int64_t longest = 0, all = 0;
  for (const int64_t length : options.lengths) {
    longest = std::max(longest, length);
    all += length;
  }
  const int64_t n_depths = static_cast<int64_t>(options.depths.size());
  Exam exam{.suite = "needle", .read_tokens = all * n_depths * options.n, .n_answer = options.n_answer};
  // A haystack's tokens are counted from a sample of it.
  exam.longest_tokens = longest + longest / 4 + 512;
  exam.n_expected = 64;
  exam.n_questions = static_cast<int64_t>(options.lengths.size()) * n_depths * options.n;
  exam.run = [options, text](Examinee& asked, Examinee&, const SuiteHooks& hooks) {
    return RunNeedle(asked, options, hooks);
  };
  return exam;
}

Action AddNeedle(CLI::App& sub) {
  auto flags = std::make_shared<NeedleFlags>();
  AddRunFlags(sub, &flags->eval);
  AddExamFlags(sub, &flags->eval, 6);
  sub.add_option("-f,--file", flags->file, "text to hide needles in; default: generated prose")->type_name("FILE");
  sub.add_option("--needles", flags->needles, "needles and questions (JSON); default: six built-in ones")
      ->type_name("FILE");
  sub.add_option("--length", flags->options.lengths, "approximate number of tokens before the question")
      ->delimiter(',')
      ->check(Between(int64_t{128}, int64_t{1} << 40))
      ->capture_default_str();
  sub.add_option("--depth", flags->options.depths, "position of the needle, 0 to 1")
      ->delimiter(',')
      ->capture_default_str();
  sub.add_option("--answer", flags->options.n_answer, "maximum answer length in tokens")
      ->check(Between(1, 4096))
      ->capture_default_str();
  return [=] { return RunExam(flags->eval, [&](const LoadedModel&) { return MakeExam(*flags); }); };
}

}  // namespace

extern const SuiteInfo kNeedle;
const SuiteInfo kNeedle = {.name = "needle", .summary = "a sentence hidden in a long text", .add = AddNeedle};

}  // namespace weir::app
