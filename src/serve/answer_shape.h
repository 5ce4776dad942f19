// SPDX-License-Identifier: Apache-2.0
// Answers in the shapes of the OpenAI API: whole, or as chunks of a stream. Both are built from the same events, so
// that they agree.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/json.h"
#include "serve/answer_job.h"
#include "serve/host.h"
#include "serve/openai_request.h"

namespace weir {

class AnswerShape {
 public:
  enum class Kind { kChat, kCompletion };
  AnswerShape(const Host& host, Kind kind, const CompletionRequest& request);

  // For whole answers: adds an event to answer `index`, which is number index mod n for prompt index / n. The first
  // event of an answer begins it.
  void Add(size_t index, const AnswerEvent& event);
  // Call once: likelihoods are large and are moved out.
  Json Whole();

  // Chunks of a stream for one event: zero, one or two.
  std::vector<Json> Chunks(size_t index, const AnswerEvent& event);
  // The chunk that ends a stream with stream_options.include_usage.
  Json UsageChunk() const;

 private:
  struct Choice {
    bool begun = false;
    std::string text;
    Json logprobs;
    std::string finish_reason;
    int64_t n_characters = 0;  // of text whose tokens were listed: text_offset
  };
  Json Head(bool chunk) const;
  Json Usage() const;
  // The `logprobs` object of these tokens.
  Json Logprobs(const std::vector<ScoredToken>& tokens, Choice* choice) const;
  std::string Spelling(int32_t id) const;
  Json Timings() const;
  void Count(size_t index, const AnswerSummary& summary);

  const Host& host_;
  const Kind kind_;
  const bool logprobs_;
  const bool include_usage_;
  const std::vector<std::string> echoes_;
  const std::string id_;
  const int64_t created_s_;
  std::vector<Choice> choices_;
  const int n_;  // answers to one prompt
  // A prompt that is read n times counts once in n_prompt_ and n_cached_, and n times in n_read_ and n_held_.
  int64_t n_prompt_ = 0, n_cached_ = 0, n_read_ = 0, n_held_ = 0, n_answer_ = 0;
  double prompt_ms_ = 0, answer_ms_ = 0;
  Json memory_;  // seen, kept and dropped of the last prompt
};

}  // namespace weir
