// weir-plugin: suite
// SPDX-License-Identifier: Apache-2.0
// weir eval streamqa: facts along an endless text, with questions about them later.
#include <algorithm>

#include "eval/stream_facts.h"
#include "suites/exam.h"
#include "suites/suite.h"

namespace weir::app {
namespace {

struct StreamQaFlags {
  EvalFlags eval;
  StreamQaOptions options;
  std::string file;
};

Result<Exam> MakeExam(const StreamQaFlags& flags) {
  constexpr int64_t kMaxTextBytes = int64_t{1} << 30;
  StreamQaOptions options = flags.options;
  options.n = flags.eval.n;
  options.seed = flags.eval.seed;
  if (flags.eval.prompt == "chat") options.n_answer = std::max(options.n_answer, 40);
  auto text = std::make_shared<std::string>();
  if (!flags.file.empty()) {
    WEIR_ASSIGN_OR_RETURN(*text, ReadTextFile(flags.file, kMaxTextBytes));
    if (text->empty()) return InvalidArgument("{} contains no text", flags.file);
  }
  options.text = *text;
  int64_t farthest = 0;
  for (const int64_t distance : options.distances) farthest = std::max(farthest, distance);
  Exam exam{
      .suite = "streamqa", .read_tokens = farthest + options.n * options.every_tokens, .n_answer = options.n_answer};
  exam.longest_tokens = exam.read_tokens + 2 * options.every_tokens + 512;
  exam.n_questions = static_cast<int64_t>(options.distances.size() + 1 + options.untold) * options.n;
  exam.run = [options, text](Examinee& asked, Examinee&, const SuiteHooks& hooks) {
    return RunStreamQa(asked, options, hooks);
  };
  return exam;
}

Action AddStreamQa(CLI::App& sub) {
  auto flags = std::make_shared<StreamQaFlags>();
  StreamQaOptions* options = &flags->options;
  AddRunFlags(sub, &flags->eval);
  AddExamFlags(sub, &flags->eval, 50);
  sub.add_option("-f,--file", flags->file, "text to put facts into; default: generated prose")->type_name("FILE");
  sub.add_option("--distance", options->distances, "tokens between a fact and its question")
      ->delimiter(',')
      ->capture_default_str();
  sub.add_option("--gap", options->gap_tokens, "tokens between facts")
      ->check(Between(int64_t{16}, int64_t{1} << 30))
      ->capture_default_str();
  sub.add_option("--every", options->every_tokens, "tokens between the points at which questions are asked")
      ->check(Between(int64_t{16}, int64_t{1} << 30))
      ->capture_default_str();
  sub.add_option(
         "--subjects", options->n_subjects,
         "facts are about so many people's things: few, and older facts are superseded; the newest is right (0: all)")
      ->check(Between(0, 1 << 20))
      ->type_name("N");
  sub.add_flag("--untold", options->untold, "also ask for facts that were never told, and count answers");
  return [=] { return RunExam(flags->eval, [&](const LoadedModel&) { return MakeExam(*flags); }); };
}

}  // namespace

extern const SuiteInfo kStreamqa;
const SuiteInfo kStreamqa = {
    .name = "streamqa", .summary = "facts stated in an endless text and asked about later", .add = AddStreamQa};

}  // namespace weir::app
