// SPDX-License-Identifier: Apache-2.0
// Questions along streams of clips, in rounds: pictures, questions and answers stay in the stream.
//
// videoqa (Inf-MLLM section 4.2, table 1): clip after clip with a question each, scored over the first 5, 10 and 300
// rounds of a stream. streamvideo (VStream-QA, Inf-MLLM table 3): questions about the stream's first minute are
// repeated while the pot's contents are replaced; present and memory questions are separate figures.
//
// An answer is right when it is one of the right ones (eval/answer_metrics.h, exact), or as its question's metric says.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "eval/picture_questions.h"
#include "eval/suite.h"
#include "eval/viewer.h"

namespace weir {

// A round that was scored.
struct ScoredRound {
  const PictureQuestion* question = nullptr;
  int64_t n = 0;  // rounds of the stream so far, this one included; those asked aside are not counted
  std::string answer;
  bool right = false;
  bool counts = true;       // a line of a poll does not unless it is the one that decides
  int64_t tokens_back = 0;  // tokens read between the clip in question and the question
  double about_min = 0;     // when that clip began, in minutes of the source
  double age_min = 0;       // minutes from then to the question
  Recalled recalled;        // what was brought back for it
};

struct VideoSuiteOptions {
  // Which answer stays in the stream: the model's own, or the right one, so that a wrong answer cannot mislead later
  // ones. The model's own answer is scored in both cases.
  bool own_answers = true;
  // videoqa: cells over the first so many rounds.
  std::vector<int32_t> rounds = {5, 10, 300};
  // streamvideo: minutes of the source that count as its beginning, and the ages (minutes between the clip in question
  // and the question) at which a new cell begins.
  double first_minutes = 1;
  std::vector<double> ages = {0, 1, 2, 4, 8, 16, 32};
  std::function<void(const ScoredRound& round, const Viewer& viewer)> on_round;  // may be empty
};

// The first rounds of the first streams; 0: all. Questions asked aside after the last round belong to it.
std::vector<PictureQuestion> FirstRounds(std::span<const PictureQuestion> questions, int32_t n_streams,
                                         int32_t n_rounds);

// Runs through streams and calls `scored` for each round. Errors of the session end it; what was scored stays scored.
Status WatchStreams(Viewer& viewer, std::span<const PictureQuestion> questions, const VideoSuiteOptions& options,
                    const SuiteHooks& hooks, const std::function<void(const ScoredRound&)>& scored);

// One cell for every number of rounds and kind: all, present, memory (everything but present), and each kind of the
// file. Reported at the end, also if the run is stopped.
Status RunVideoQa(Viewer& viewer, std::span<const PictureQuestion> questions, const VideoSuiteOptions& options,
                  const SuiteHooks& hooks);

// Published tasks along videos (OVO-Bench, StreamingBench, EgoSchema): a cell for every kind, in the order of the
// questions, and one for all of them. Scores are those of PictureQuestion::metric; a poll counts once.
Status RunVideoTasks(Viewer& viewer, std::span<const PictureQuestion> questions, const VideoSuiteOptions& options,
                     const SuiteHooks& hooks);

// Cells: present; first_minute, one for every age; memory, for questions about what came later; questions about
// the first minutes that come before the first age count nowhere. `turnovers`: how often
// the pot could have been filled anew in between.
Status RunStreamVideo(Viewer& viewer, std::span<const PictureQuestion> questions, const VideoSuiteOptions& options,
                      const SuiteHooks& hooks);

}  // namespace weir
