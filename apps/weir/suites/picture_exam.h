// SPDX-License-Identifier: Apache-2.0
// Shared by the suites of `weir eval` with pictures: the questions' folder, the encoder, lists of pruners and policies,
// the loop over them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "eval/picture_questions.h"
#include "eval/viewer.h"
#include "pictures.h"
#include "suites/exam.h"

namespace weir::app {

struct PictureEvalFlags {
  EvalFlags eval;
  PictureFlags pictures;
  ViewerOptions viewer;
  std::string data, form, resume;
  std::vector<std::string> prune;  // lists, as --policy; empty: no pruner
  double fps = 1;
  double share =
      0;  // of the longest prompt: the pot of policies that neither keep everything nor trim prompts; 0: --pot
};

// -m, --mmproj, --data, lists of policies and pots, --prompt, --form, --answer, --resume.
void AddPictureRunFlags(CLI::App& app, PictureEvalFlags* flags, const std::string& policies);
// --fps; answers of frames of a video.
void AddFrameFlags(CLI::App& app, PictureEvalFlags* flags);
// --prune.
void AddPruneFlag(CLI::App& app, PictureEvalFlags* flags);

// A suite, made ready for a model and its encoder.
struct PictureExam {
  const char* suite;
  int64_t longest_tokens = 0;  // of one stream: what a policy that never forgets gets as its pot
  std::string settings;        // what else decides the figures, for the rows
  std::function<Status(Viewer& viewer, const SuiteHooks& hooks)> run;
};
struct PictureExamInput {
  std::vector<PictureQuestion> questions;
  // Tokens of the longest of their streams; of the longest question by itself where `apart` says so.
  std::function<int64_t(std::span<const PictureQuestion> questions, bool apart)> longest_tokens;
};
using MakePictureExam = std::function<Result<PictureExam>(const PictureExamInput& input)>;

// One pruner of a run; what its rows say of it.
struct PruneRun {
  PrunerSpec spec;              // without a pruner every row stays
  std::string method = "none";  // the pruner and its options without `keep`
  double keep = 1;
};
Result<std::vector<PruneRun>> PruneRunsOf(const std::vector<std::string>& lists);
// The pruners of a suite that chooses them itself; nullptr: those of --prune.
using ChoosePruners = std::function<Result<std::vector<PruneRun>>(const Encoder& encoder)>;

// Loads model, encoder and questions, runs the exam with every pruner, policy and pot, and prints a row for each cell
// at the end of each run. A stopped run prints what it has, marked as incomplete; runs that are complete in --resume's
// rows are skipped.
Status RunPictureExam(const PictureEvalFlags& flags, const MakePictureExam& make,
                      const ChoosePruners& choose = nullptr);

// The default of --policy.
extern const char* const kContenders;

}  // namespace weir::app
