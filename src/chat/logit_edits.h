// SPDX-License-Identifier: Apache-2.0
// Logit bias, presence penalty and frequency penalty, as in the OpenAI API.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace weir {

struct LogitOptions {
  std::map<int32_t, float> bias;  // added to the logits of these tokens
  float presence_penalty = 0;     // subtracted from the logit of every token that occurs in the answer
  float frequency_penalty = 0;    // subtracted once per occurrence
};

class LogitEdits {
 public:
  explicit LogitEdits(LogitOptions options) : options_(std::move(options)) {}

  // Whether Apply() would change nothing.
  bool empty() const { return options_.bias.empty() && counts_.empty(); }
  // Apply() edits the logits for one draw; Undo() restores their exact bits. REQUIRES: every id, including those in the
  // options, is a valid index into `logits`.
  void Apply(std::span<float> logits);
  void Undo(std::span<float> logits);
  // Records a token of the answer.
  void Accept(int32_t id);

 private:
  void Add(std::span<float> logits, int32_t id, float what);

  const LogitOptions options_;
  std::map<int32_t, int64_t> counts_;              // of the answer's tokens, if a penalty needs them
  std::vector<std::pair<int32_t, float>> before_;  // original logits by id, in the order in which they were changed
};

}  // namespace weir
