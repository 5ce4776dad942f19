// SPDX-License-Identifier: Apache-2.0
// Questions along an endless text: short facts about distinct people appear along the way, and questions about them
// follow at given distances. After the question styles of VStream-QA (present and memory questions along one stream),
// in text. Score: the number in the answer equals the fact's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "eval/examinee.h"
#include "eval/suite.h"

namespace weir {

struct Fact {
  std::string subject;  // The courier's badge number
  int32_t value = 0;    // five digits
  std::string text() const { return subject + " is " + std::to_string(value) + "."; }
};

// Facts about distinct subjects; after n_subjects of them the subjects repeat in the same order with new values.
class FactSource {
 public:
  // n_subjects 0: all there are.
  explicit FactSource(uint64_t seed, int64_t n_subjects = 0);
  Fact Next();
  // A fact that was not told and will not be soon: the i-th from the end of the order. REQUIRES: i < MaxSubjects().
  Fact Untold(int64_t i);
  static int64_t MaxSubjects();

 private:
  Fact About(int32_t idx);
  int64_t n_subjects_;
  Rng rng_;
  std::vector<int32_t> order_;
  int64_t n_ = 0;
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
  uint64_t seed = 0;
  int32_t n_answer = 12;
};
// One stream. Every point has a question about the newest fact (`kind` present) and, for each distance already read,
// about the fact nearest to it (`kind` memory), all aside. With `untold`, one more each about a subject of which
// nothing was told: `kind` untold, whose metric is the share of answers that are numbers, which are all wrong. Cells
// are reported at the end, also if the run is stopped. kInvalidArgument: distances so long that subjects would repeat,
// or no questions.
Status RunStreamQa(Examinee& examinee, const StreamQaOptions& options, const SuiteHooks& hooks);

}  // namespace weir
