// SPDX-License-Identifier: Apache-2.0
// Published tasks of text: a long context is read through the pot, questions about it are asked, and their answers are
// scored without a judge. A data set is a list of such tasks; what reads or generates one is a file of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "eval/examinee.h"
#include "eval/suite.h"

namespace weir {

// A part of a text, in bytes.
struct TextSpan {
  size_t begin = 0, end = 0;
};

struct TextQuestion {
  std::string text;  // read behind the context, in the same turn
  std::string lead;  // begins the answer, where the protocol gives these words; the model continues them
  std::vector<std::string> answers;
};

struct TextSample {
  std::string context;
  // Asked in order. One becomes part of the stream; of several each is asked aside, over the context alone.
  std::vector<TextQuestion> questions;
  std::vector<TextSpan> evidence;  // where the context answers, if the data set says so: in order, apart
};

struct TextTask {
  std::string name;
  std::string metric;                                        // of TextScore()
  std::vector<std::pair<std::string, double>> numbers = {};  // what else tells its cell apart, as in Cell
  int64_t n = 0;                                             // samples
  int32_t n_answer = 16;                                     // longest answer in tokens
  // Sample i of n. It depends on nothing else, so that every policy is asked the same.
  std::function<Result<TextSample>(int64_t i)> sample;
};

// The score of a reply, in [0, 1]. `answers` are the right ones, or all that must be named, as the metric says:
//   all, part                    RULER: share of the answers that the reply contains; 1 if it contains any. Without
//   case em, sub_em                   HELMET: the reply equals, or contains, an answer, both without case, punctuation,
//   the
//                                articles and double spaces
//   first_number, word, upper_word, book_choice   InfiniteBench: the reply's first number is the answer; one of its
//   words
//                                is, the reply in capitals for upper_word; its letter is the answer's (answers: letter
//                                and text of the right option)
//   contains                     SCBench's values: the reply has the answer, word for word
//   initial                      StreamingBench: the reply's first character is the answer
//   letter, digits, yes_no       OVO-Bench: the reply has the answer's letter anywhere; its digits together are the
//                                answer; it has the answer (Yes or No), or is its initial
//   qa_f1, rouge, ...            LongBench's (eval/longbench_metrics.h): the best over the answers
// kUnsupported for another metric, kInvalidArgument without an answer.
Result<double> TextScore(std::string_view metric, std::string_view reply, std::span<const std::string> answers);

struct TextRunOptions {
  // Above 0: the baseline. A prompt with more tokens than this, its answer included, loses its context's middle, and
  // nothing is forgotten.
  int64_t cut = 0;
};
// One cell per task. Where the samples have evidence, Cell::more has `evidence_held`: the share of its tokens that the
// pot held in any layer and head when the first question had been answered; with recall also what CountRecalled() adds.
// A task that hooks.finished knows is left out.
Status RunTextTasks(Examinee& examinee, std::span<const TextTask> tasks, const TextRunOptions& options,
                    const SuiteHooks& hooks);

}  // namespace weir
