// SPDX-License-Identifier: Apache-2.0
// Answers in the shapes of the OpenAI API's chats and completions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/json.h"
#include "serve/answer_tally.h"
#include "serve/completion_request.h"
#include "serve/host.h"
#include "serve/message_parts.h"
#include "serve/reply_shape.h"

namespace weir {

class AnswerShape : public ReplyShape {
 public:
  enum class Kind { kChat, kCompletion };
  AnswerShape(const Host& host, Kind kind, const CompletionRequest& request);

  void Add(size_t index, const AnswerEvent& event) override;
  // Likelihoods are large and are moved out.
  Json Whole() override;
  std::string Stream(size_t index, const AnswerEvent& event) override;
  // [DONE], after a chunk with the usage for stream_options.include_usage.
  std::string End() override;
  std::string Failed(const ApiError& error) override;

 private:
  struct Choice {
    bool begun = false;
    std::string text;    // of a completion
    MessageParts parts;  // of a chat
    Json logprobs;
    std::string finish_reason;
    int64_t n_characters = 0;  // of text whose tokens were listed: text_offset
  };
  Json Head(bool chunk) const;
  Json Usage() const;
  // The `logprobs` object of these tokens.
  Json Logprobs(const std::vector<ScoredToken>& tokens, Choice* choice) const;
  std::string Spelling(int32_t id) const;
  // Zero, one or two chunks of a stream for one event.
  std::vector<Json> Chunks(size_t index, const AnswerEvent& event);

  const Host& host_;
  const Kind kind_;
  const bool logprobs_;
  const bool include_usage_;
  const bool timings_per_token_;
  const std::vector<std::string> echoes_;
  const std::string id_;
  const int64_t created_s_;
  std::vector<Choice> choices_;
  const int n_;  // answers to one prompt
  AnswerTally tally_;
};

}  // namespace weir
