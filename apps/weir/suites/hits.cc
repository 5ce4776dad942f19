// weir-plugin: suite
// SPDX-License-Identifier: Apache-2.0
// weir eval hits: what a pot holds after each selection, against scoring everything at once.
#include <memory>
#include <string>

#include <fmt/core.h>

#include "eval/hits.h"
#include "suites/exam.h"
#include "suites/suite.h"

namespace weir::app {
namespace {

struct HitsFlags {
  EvalFlags eval;
  HitsOptions options;
  std::string file, global = "infinipot:alpha=0";
};

// Global scoring: `policy` in a pot for n_tokens tokens, of which it keeps n_keep.
Result<std::unique_ptr<Session>> MakeGlobalSession(const HitsFlags& flags, const LoadedModel& model, int32_t n_tokens,
                                                   int32_t n_keep) {
  WEIR_ASSIGN_OR_RETURN(SessionOptions options, OptionsOf(flags.eval, {flags.global, n_tokens}));
  const auto whole =
      WithOption(options.policy, "ratio", fmt::format("{:.17g}", static_cast<double>(n_keep) / n_tokens));
  if (!whole.ok()) {
    return InvalidArgument("--global {}: expected a policy with the option `ratio`, such as infinipot", flags.global);
  }
  options.policy = *whole;
  options.nll = true;
  WEIR_RETURN_IF_ERROR(AddProbe(model, flags.eval.model, false, std::nullopt, &options));
  options.pot_slots = n_tokens + static_cast<int32_t>(options.probe.size());
  return Session::Make(model.model(), model.backend(), options);
}

Result<Exam> MakeHitsExam(const HitsFlags& flags, const LoadedModel& model) {
  constexpr int64_t kMaxTextBytes = int64_t{1} << 30;
  HitsOptions options = flags.options;
  options.n = flags.eval.n;
  options.seed = flags.eval.seed;
  auto text = std::make_shared<std::string>();
  if (!flags.file.empty()) {
    WEIR_ASSIGN_OR_RETURN(*text, ReadTextFile(flags.file, kMaxTextBytes));
    if (text->empty()) return InvalidArgument("{} contains no text", flags.file);
  }
  options.text = *text;
  Exam exam;
  exam.suite = "hits";
  // The sum of the growing texts that global scoring reads, about; the pots are known when they run.
  const int64_t pot = flags.eval.pots.empty() ? 1024 : flags.eval.pots.front();
  exam.longest_tokens = pot * options.n_cycles;
  exam.read_tokens = pot * options.n_cycles * (options.n_cycles + 3) / 4 * options.n;
  exam.run = [&flags, &model, options, text](Examinee& asked, Examinee&, const SuiteHooks& hooks) {
    const auto global = [&](int32_t n_tokens, int32_t n_keep) {
      return MakeGlobalSession(flags, model, n_tokens, n_keep);
    };
    return RunHits(asked.session(), model.tokenizer(), global, options, &StopFlag(), hooks);
  };
  return exam;
}

Action AddHits(CLI::App& sub) {
  auto flags = std::make_shared<HitsFlags>();
  AddRunFlags(sub, &flags->eval);
  AddExamFlags(sub, &flags->eval, 4);
  sub.add_option("-f,--file", flags->file, "text to read, each trial from another place; default: generated prose")
      ->type_name("FILE");
  sub.add_option("--cycles", flags->options.n_cycles, "selections of a trial")
      ->check(Between(1, 1 << 12))
      ->capture_default_str();
  sub.add_option("--global", flags->global, "policy that scores everything at once; its `ratio` follows from the pot")
      ->type_name("POLICY")
      ->capture_default_str();
  return [=] { return RunExam(flags->eval, [&](const LoadedModel& model) { return MakeHitsExam(*flags, model); }); };
}

}  // namespace

extern const SuiteInfo kHits;
const SuiteInfo kHits = {.name = "hits",
                         .summary = "which tokens a pot holds, against those that scoring everything at once keeps",
                         .add = AddHits};

}  // namespace weir::app
