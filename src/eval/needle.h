// SPDX-License-Identifier: Apache-2.0
// Needle in a haystack: one or more sentences put into a long text at a depth (Kamradt 2023,
// LLMTest_NeedleInAHaystack). Judged by words that a right answer must contain instead of by a language model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "eval/examinee.h"
#include "eval/suite.h"

namespace weir {

struct Needle {
  std::vector<std::string> needles;  // sentences; several are spread evenly from the depth to the end
  std::string question;
  std::string answer_prefix;              // completion: the text that the model continues; empty: "Answer:"
  std::string answer;                     // the right continuation; empty: only judged by must_contain
  std::vector<std::string> must_contain;  // all of them, ASCII case ignored
};

// Six needles with one fact each.
std::vector<Needle> DefaultNeedles();
// {"single": [{"needle", "question", "must_contain", "answers"?}], "multi": [{"needles", "question", "must_contain"}]}.
// kCorrupt says what is missing.
Result<std::vector<Needle>> ParseNeedles(std::string_view json);

// The text with the needles in it. Each is inserted after the last period before its place, or exactly there if there
// is none. depth in [0, 1].
std::string HideNeedles(std::string_view haystack, const std::vector<std::string>& needles, double depth);

struct NeedleOptions {
  std::vector<Needle> needles;                        // trial t asks for needles[t % size]
  std::string_view haystack;                          // a text that outlives the run; empty: made-up prose
  std::vector<int64_t> lengths = {1024, 2048, 4096};  // approximate tokens from the beginning to the question
  std::vector<double> depths = {0, 0.25, 0.5, 0.75, 1};
  int32_t n = 6;  // trials per cell
  uint64_t seed = 0;
  int32_t n_answer = 32;
};
// One cell per (`length`, `depth`), reported when finished. kInvalidArgument: nothing to ask.
Status RunNeedle(Examinee& examinee, const NeedleOptions& options, const SuiteHooks& hooks);

}  // namespace weir
