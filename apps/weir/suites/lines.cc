// weir-plugin: suite
// SPDX-License-Identifier: Apache-2.0
// weir eval lines: line retrieval along one stream (StreamEval, Inf-MLLM) or from one prompt a trial (LongEval).
#include <algorithm>

#include "eval/lines_suite.h"
#include "suites/exam.h"
#include "suites/suite.h"

namespace weir::app {
namespace {

struct LinesFlags {
  EvalFlags eval;
  LinesOptions options;
  std::string style = "stream", keys = "word", format = "plain", file;
};

double MeanTokensOfLine(const Tokenizer& tokenizer, const LinesOptions& options) {
  constexpr int kLines = 50;
  LineSource source(options.keys, options.seed);
  std::string text;
  for (int i = 0; i < kLines; ++i) text += LineText(options.format, source.Next());
  // Prose has about five bytes a token.
  return static_cast<double>(tokenizer.Encode(text).size()) / kLines + options.gap_bytes / 5.0;
}

Result<Exam> MakeExam(const LinesFlags& flags, LinesOptions options, const LoadedModel& model) {
  options.n = flags.eval.n;
  options.seed = flags.eval.seed;
  options.keys = flags.keys == "word" ? LineKeys::kWord : flags.keys == "pair" ? LineKeys::kPair : LineKeys::kNumber;
  options.format = flags.format == "plain"      ? LineFormat::kPlain
                   : flags.format == "register" ? LineFormat::kRegister
                                                : LineFormat::kLongEval;
  // A model that is asked says its number anywhere in a sentence.
  if (flags.eval.prompt == "chat") options.n_answer = std::max(options.n_answer, 40);
  const double line = MeanTokensOfLine(model.tokenizer(), options);
  Exam exam{.suite = "lines", .n_answer = options.n_answer};
  constexpr int64_t kMargin = 256;
  if (!flags.file.empty()) {
    constexpr int64_t kMaxFileBytes = int64_t{1} << 28;
    WEIR_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.file, kMaxFileBytes));
    auto cases = ParseLinesCases(text);
    if (!cases.ok()) return Corrupt("{}: {}", flags.file, cases.status().message());
    exam.n_questions = std::min<int64_t>(options.n, static_cast<int64_t>(cases->size()));
    for (int64_t i = 0; i < exam.n_questions; ++i) {
      const auto n = static_cast<int64_t>(model.tokenizer().Encode((*cases)[static_cast<size_t>(i)].prompt).size());
      exam.read_tokens += n;
      exam.longest_tokens = std::max(exam.longest_tokens, n);
    }
    exam.longest_tokens += kMargin;
    exam.run = [options, cases = std::move(*cases)](Examinee& asked, Examinee&, const SuiteHooks& hooks) {
      return RunLinesCases(asked, cases, options, hooks);
    };
  } else if (flags.style == "stream") {
    WEIR_RETURN_IF_ERROR(CheckLinesOptions(options, true));
    const int64_t n_points =
        static_cast<int64_t>(options.n) * (options.carry ? static_cast<int64_t>(options.distances.size()) : 1);
    const int64_t n_lines =
        *std::max_element(options.distances.begin(), options.distances.end()) + n_points * options.every;
    exam.read_tokens = static_cast<int64_t>(line * static_cast<double>(n_lines));
    exam.n_questions = static_cast<int64_t>(options.n) * static_cast<int64_t>(options.distances.size());
    exam.longest_tokens = exam.read_tokens + exam.read_tokens / 8 + kMargin;
    if (options.carry) exam.longest_tokens += exam.n_questions * (options.n_answer + 32);
    exam.run = [options](Examinee& asked, Examinee&, const SuiteHooks& hooks) {
      return RunLinesStream(asked, options, hooks);
    };
  } else {
    WEIR_RETURN_IF_ERROR(CheckLinesOptions(options, false));
    int64_t n_lines = 0;
    for (const int32_t n : options.n_lines) n_lines += n;
    exam.read_tokens = static_cast<int64_t>(line * static_cast<double>(n_lines)) * options.n;
    exam.n_questions = static_cast<int64_t>(options.n) * static_cast<int64_t>(options.n_lines.size());
    exam.longest_tokens =
        static_cast<int64_t>(1.2 * line * *std::max_element(options.n_lines.begin(), options.n_lines.end())) + kMargin;
    exam.run = [options](Examinee& asked, Examinee&, const SuiteHooks& hooks) {
      return RunLinesPrompts(asked, options, hooks);
    };
  }
  return exam;
}

Action AddLines(CLI::App& sub) {
  auto flags = std::make_shared<LinesFlags>();
  LinesOptions* options = &flags->options;
  AddRunFlags(sub, &flags->eval);
  AddExamFlags(sub, &flags->eval, 50);
  sub.add_option("--style", flags->style, "stream: one endless stream (StreamEval); longeval: one prompt per trial")
      ->check(CLI::IsMember({"stream", "longeval"}))
      ->capture_default_str();
  sub.add_option("-f,--file", flags->file, "published LongEval cases (JSON lines) instead of generated prompts")
      ->type_name("FILE");
  sub.add_option("--distance", options->distances, "stream: lines between the line in question and its question")
      ->delimiter(',')
      ->capture_default_str();
  sub.add_option("--every", options->every, "stream: lines between questions")->capture_default_str();
  sub.add_flag("--carry", options->carry,
               "stream: questions and answers stay in the stream, one question a round; a round's prompt is its lines "
               "and its question");
  sub.add_option("--gap", options->gap_bytes, "stream: bytes of generated prose before every line")
      ->check(Between(0, 1 << 16))
      ->capture_default_str();
  sub.add_option("--lines", options->n_lines, "longeval: lines per prompt")->delimiter(',')->capture_default_str();
  sub.add_option("--keys", flags->keys, "line names: number (StreamEval), pair (LongEval), word")
      ->check(CLI::IsMember({"number", "pair", "word"}))
      ->capture_default_str();
  sub.add_option("--format", flags->format, "plain: KEY: VALUE; register: StreamEval's sentence; longeval: LongEval's")
      ->check(CLI::IsMember({"plain", "register", "longeval"}))
      ->capture_default_str();
  return [=] {
    return RunExam(flags->eval, [&](const LoadedModel& model) { return MakeExam(*flags, flags->options, model); });
  };
}

}  // namespace

extern const SuiteInfo kLines;
const SuiteInfo kLines = {.name = "lines",
                          .summary = "recall the numbers of earlier lines: how far back does the model remember?",
                          .add = AddLines};

}  // namespace weir::app
