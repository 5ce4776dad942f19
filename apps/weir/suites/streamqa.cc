// weir-plugin: suite
// SPDX-License-Identifier: Apache-2.0
// weir eval streamqa: facts along an endless text, with questions about them later.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "eval/stream_facts.h"
#include "io/json.h"
#include "print.h"
#include "suites/exam.h"
#include "suites/suite.h"

namespace weir::app {
namespace {

struct StreamQaFlags {
  EvalFlags eval;
  StreamQaOptions options;
  std::string file, log;
};

// A line of JSON for every text that is read and every question that is asked.
Result<StreamLog> MakeLog(const std::string& path) {
  const std::shared_ptr<std::FILE> file(std::fopen(path.c_str(), "we"), [](std::FILE* open) {
    if (open != nullptr) std::fclose(open);
  });
  if (file == nullptr) return IoError("cannot write {}: {}", path, std::strerror(errno));
  StreamLog log;
  log.read = [file](std::string_view text) {
    Print(file.get(), "{}\n", JsonText(nlohmann::ordered_json{{"read", text}}));
  };
  log.asked = [file](const Question& question, std::string_view kind, int64_t tokens_back) {
    Print(file.get(), "{}\n",
          JsonText(nlohmann::ordered_json{
              {"ask", question.completion}, {"gold", question.gold}, {"kind", kind}, {"tokens_back", tokens_back}}));
  };
  return log;
}

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
  if (options.distances.empty()) return InvalidArgument("--distance needs at least one distance");
  if (!flags.log.empty()) {
    WEIR_ASSIGN_OR_RETURN(options.log, MakeLog(flags.log));
  }
  Exam exam{.suite = "streamqa", .read_tokens = StreamQaTokens(options), .n_answer = options.n_answer};
  exam.longest_tokens = exam.read_tokens + 2 * options.every_tokens + 512;
  if (options.carry) exam.longest_tokens += exam.read_tokens / options.every_tokens * (options.n_answer + 32);
  exam.n_questions =
      static_cast<int64_t>(options.distances.size() + 1 + options.untold) * options.n + 5 * options.n_sets;
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
  sub.add_flag(
      "--carry", options->carry,
      "questions and answers stay in the stream, one question a round; a round's prompt is what was read since "
      "the last answer, and its question");
  sub.add_flag("--untold", options->untold, "also ask for facts that were never told, and count answers");
  sub.add_flag("--paraphrase", options->paraphrase, "ask in other words: no word of a question is in its fact");
  sub.add_option("--sets", options->n_sets,
                 "at the end also ask for four facts about each of so many people, told one in every quarter of the "
                 "stream: one after the other, and all four at once")
      ->check(Between(0, 1 << 20))
      ->type_name("N");
  sub.add_option("--log", flags->log, "write what is read and asked to this file, as lines of JSON")->type_name("FILE");
  return [=] { return RunExam(flags->eval, [&](const LoadedModel&) { return MakeExam(*flags); }); };
}

}  // namespace

extern const SuiteInfo kStreamqa;
const SuiteInfo kStreamqa = {
    .name = "streamqa", .summary = "facts stated in an endless text and asked about later", .add = AddStreamQa};

}  // namespace weir::app
