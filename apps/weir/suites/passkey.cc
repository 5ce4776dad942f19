// weir-plugin: suite
// SPDX-License-Identifier: Apache-2.0
// weir eval passkey: a number hidden in filler.
#include <algorithm>

#include "eval/passkey.h"
#include "suites/exam.h"
#include "suites/suite.h"

namespace weir::app {
namespace {

struct PasskeyFlags {
  EvalFlags eval;
  PasskeyOptions options;
  std::string mode = "growing";
};

Result<Exam> MakeExam(const PasskeyFlags& flags) {
  PasskeyOptions options = flags.options;
  options.n = flags.eval.n;
  options.seed = flags.eval.seed;
  if (flags.eval.prompt == "chat") options.n_answer = std::max(options.n_answer, 40);
  const bool growing = flags.mode == "growing";
  if (options.carry && !growing) return InvalidArgument("--carry: only with --mode growing");
  WEIR_RETURN_IF_ERROR(CheckPasskeyOptions(options, growing));
  constexpr int64_t kMargin = 256;
  const int64_t longest = *std::max_element(options.lengths.begin(), options.lengths.end()),
                n_lengths = static_cast<int64_t>(options.lengths.size()),
                n_others = static_cast<int64_t>(growing ? options.key_at.size() : options.depths.size());
  int64_t all = 0;
  for (const int64_t length : options.lengths) all += length;
  Exam exam{.suite = "passkey",
            .longest_tokens = longest + kMargin,
            .n_questions = n_lengths * n_others * options.n,
            .n_answer = options.n_answer};
  exam.n_expected = 24;
  exam.read_tokens = (growing && !options.carry ? longest : all) * n_others * options.n;
  if (options.carry) exam.longest_tokens += n_lengths * (options.n_answer + 32);
  exam.run = [options, growing](Examinee& asked, Examinee&, const SuiteHooks& hooks) {
    return growing ? RunPasskeyGrowing(asked, options, hooks) : RunPasskeyGrid(asked, options, hooks);
  };
  return exam;
}

Action AddPasskey(CLI::App& sub) {
  auto flags = std::make_shared<PasskeyFlags>();
  AddRunFlags(sub, &flags->eval);
  AddExamFlags(sub, &flags->eval, 10);
  sub.add_option("--mode", flags->mode,
                 "growing: one stream per trial, asked again at every length; grid: one stream per length and depth")
      ->check(CLI::IsMember({"growing", "grid"}))
      ->capture_default_str();
  sub.add_option("--length", flags->options.lengths, "tokens before the question")
      ->delimiter(',')
      ->check(Between(int64_t{128}, int64_t{1} << 40))
      ->capture_default_str();
  sub.add_option("--depth", flags->options.depths, "grid: position of the key, 0 to 1")
      ->delimiter(',')
      ->capture_default_str();
  sub.add_option("--key-at", flags->options.key_at, "growing: tokens of filler before the key")
      ->delimiter(',')
      ->check(Between(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  sub.add_flag(
      "--carry", flags->options.carry,
      "growing: at every length a round ends, whose question and answer stay; only a trial's last one asks for "
      "the key");
  return [=] { return RunExam(flags->eval, [&](const LoadedModel&) { return MakeExam(*flags); }); };
}

}  // namespace

extern const SuiteInfo kPasskey;
const SuiteInfo kPasskey = {
    .name = "passkey", .summary = "a number stated once in endless filler text", .add = AddPasskey};

}  // namespace weir::app
