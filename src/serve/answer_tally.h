// SPDX-License-Identifier: Apache-2.0
// What the answers of one request cost, and what their pots hold: the counts that every API shows in its own words.
#pragma once

#include <cstdint>

#include "io/json.h"
#include "serve/answer_job.h"

namespace weir {

class AnswerTally {
 public:
  // n: answers to one prompt.
  explicit AnswerTally(int n = 1) : n_(n) {}

  // The end of answer `index` (ReplyShape::Add).
  void Count(size_t index, const AnswerSummary& summary);

  // A prompt that is answered n times counts once.
  int64_t n_prompt() const { return n_prompt_; }
  int64_t n_cached() const { return n_cached_; }
  int64_t n_answer() const { return n_answer_; }
  double prompt_ms() const { return prompt_ms_; }
  double answer_ms() const { return answer_ms_; }
  // Times and rates with llama-server's names.
  Json Timings() const;
  // The same of one answer that is being written.
  static Json TimingsSoFar(const AnswerEvent& event);
  // The `weir` object: seen, kept and dropped of the last prompt, by modality, and what recall brought back.
  const Json& memory() const { return memory_; }

 private:
  const int n_;
  // n_read_ and n_held_ count a prompt as often as it was read.
  int64_t n_prompt_ = 0, n_cached_ = 0, n_read_ = 0, n_held_ = 0, n_answer_ = 0;
  int64_t n_guessed_ = 0, n_guessed_right_ = 0;
  double prompt_ms_ = 0, answer_ms_ = 0;
  Json memory_;
};

}  // namespace weir
