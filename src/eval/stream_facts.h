// SPDX-License-Identifier: Apache-2.0
// Questions along an endless text: short facts about distinct people appear along the way, and questions about them
// follow at given distances. After the question styles of VStream-QA (present and memory questions along one stream),
// in text. Score: the number in the answer equals the fact's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "eval/examinee.h"
#include "eval/suite.h"

namespace weir {

// What was read and asked, for a program outside that does the same.
struct StreamLog {
  std::function<void(std::string_view text)> read;
  std::function<void(const Question& question, std::string_view kind, int64_t tokens_back)> asked;
};

struct StreamQaOptions {
  std::string_view text;                                // outlives the run; empty: made-up prose
  std::vector<int64_t> distances = {1024, 2048, 4096};  // tokens between fact and question
  int64_t gap_tokens = 1024;                            // between facts
  int64_t every_tokens = 512;                           // between points at which questions are asked
  int32_t n = 50;                                       // questions of every distance
  int64_t n_subjects =
      0;                // 0: all. Fewer: facts are superseded, each subject's after as many facts; the newest is right
  bool untold = false;  // also ask for facts that were never told
  bool paraphrase = false;  // questions share no word with the text
  // Questions and answers stay in the stream, one question a round: the newest fact's, then every distance's in turn.
  // What was read since the last answer and the question are one prompt, and no fact is asked for twice (the nearest to
  // the distance that was not). Neither `untold` nor sets.
  bool carry = false;
  // At the end of the stream, ask for four facts about each of so many people, told one in every quarter of it: one
  // after the other, and in one question.
  int32_t n_sets = 0;
  StreamLog log;  // may be empty
  uint64_t seed = 0;
  int32_t n_answer = 12;
};
// Tokens that a run reads, about.
int64_t StreamQaTokens(const StreamQaOptions& options);

// One stream. Every point has a question about the newest fact (`kind` present) and, for each distance already read,
// about the fact nearest to it (`kind` memory), all aside. With `untold`, one more each about a subject of which
// nothing was told: `kind` untold, whose metric is the share of answers that are numbers, which are all wrong. With
// `n_sets`, two cells more: `kind` needle, each of the four; `kind` needles, all four in one question, right if all
// four numbers are in the answer (`values` is the mean share). Cells are reported at the end, also if the run is
// stopped. Streams that need more subjects than the usual ones have draw from more (FactPool). kInvalidArgument:
// distances so long that subjects would repeat, sets that a stream so short does not have, or no questions.
Status RunStreamQa(Examinee& examinee, const StreamQaOptions& options, const SuiteHooks& hooks);

}  // namespace weir
