// SPDX-License-Identifier: Apache-2.0
#include "suites/video_flags.h"
#include "print.h"

#include <fmt/core.h>
#include <cmath>
#include <cstdio>

namespace weir::app {
namespace {

// "[0:12] In clip 3, what colour was it? red (right; 212 tokens seen, 180 held; brought back 0:04)", on standard error.
void PrintRound(const ScoredRound& round, const Viewer& viewer) {
  const PictureQuestion& q = *round.question;
  const int64_t seconds = std::llround(60 * (round.about_min + round.age_min));
  const SessionCounters tokens = viewer.session().counters();
  const std::string verdict = round.right ? "right" : "wrong: " + q.answers.front();
  std::string back;
  for (const RecalledPassage& passage : round.recalled.passages) {
    const int64_t from = passage.t_ms / 1000;
    back += fmt::format("{}{}:{:02}", back.empty() ? "; brought back " : ", ", from / 60, from % 60);
  }
  Print(stderr, "[{}:{:02}] {} {} ({}; {} tokens seen, {} held{})\n", seconds / 60, seconds % 60, Printable(q.question),
        Printable(round.answer), Printable(verdict), CountText(tokens.seen), CountText(tokens.kept), back);
}

}  // namespace

MakePictureExam MakeVideoExam(const char* suite, const VideoFlags& flags, int32_t n_rounds, RunVideoSuite run) {
  return [=, &flags](const PictureExamInput& input) -> Result<PictureExam> {
    VideoSuiteOptions options = flags.options;
    options.own_answers = flags.answers == "own";
    if (flags.transcript) options.on_round = PrintRound;
    const std::vector<PictureQuestion> questions = FirstRounds(input.questions, flags.n_streams, n_rounds);
    PictureExam exam;
    exam.suite = suite;
    exam.longest_tokens = input.longest_tokens(questions, false);
    exam.settings = fmt::format("streams={} rounds={} answers={} fps={:g}", flags.n_streams, n_rounds, flags.answers,
                                flags.run.fps);
    exam.run = [=](Viewer& viewer, const SuiteHooks& hooks) { return run(viewer, questions, options, hooks); };
    return exam;
  };
}

void AddVideoFlags(CLI::App& sub, VideoFlags* flags) {
  flags->run.eval.pots = {512};
  AddPictureRunFlags(sub, &flags->run, kContenders);
  AddFrameFlags(sub, &flags->run);
  AddPruneFlag(sub, &flags->run);
  sub.add_option("--streams", flags->n_streams, "number of streams to run, from the first on; 0 = all")
      ->check(Between(0, 1 << 30))
      ->capture_default_str();
  sub.add_option(
         "--answers", flags->answers,
         "answer that stays in the stream: own = the model's, true = the right one; the model's is always scored")
      ->check(CLI::IsMember({"own", "true"}))
      ->capture_default_str();
  sub.add_flag("--transcript", flags->transcript,
               "also print every question and answer, with its time, to standard error");
}

}  // namespace weir::app
