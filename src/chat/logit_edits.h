// SPDX-License-Identifier: Apache-2.0
// What a request asks of single tokens, in the terms of the OpenAI API: a bias, and less of what its answer has already
// said.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace weir {

struct LogitOptions {
  std::map<int32_t, float> bias;  // added to the logits of these tokens
  float presence_penalty = 0;     // taken from the logit of every token that the answer holds
  float frequency_penalty = 0;    // taken once for each time it holds it
};

class LogitEdits {
 public:
  explicit LogitEdits(LogitOptions options) : options_(std::move(options)) {}

  // Apply() would change nothing.
  bool empty() const { return options_.bias.empty() && counts_.empty(); }
  // For one draw; Undo() puts the bits back that Apply() found. REQUIRES: every id lies inside `logits`, as do those of
  // the options.
  void Apply(std::span<float> logits);
  void Undo(std::span<float> logits);
  // A token of the answer.
  void Accept(int32_t id);

 private:
  void Add(std::span<float> logits, int32_t id, float what);

  const LogitOptions options_;
  std::map<int32_t, int64_t> counts_;              // of the answer's tokens, where a penalty asks for them
  std::vector<std::pair<int32_t, float>> before_;  // ids and their logits, in the order in which they were changed
};

}  // namespace weir
