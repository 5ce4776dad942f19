// SPDX-License-Identifier: Apache-2.0
// An answer's parts in the words of the OpenAI API: as a message, and as the deltas of a stream.
#pragma once

#include <string>
#include <vector>

#include "io/json.h"
#include "text/answer_part.h"

namespace weir {

class MessageParts {
 public:
  void Add(const std::vector<AnswerPart>& parts);
  // {"role": "assistant", "content": ..., "reasoning_content": ..., "tool_calls": [...]}. Moves the texts out.
  Json Message();

  // The parts as deltas; of a call first its id and its tool's name, then pieces of its arguments.
  std::vector<Json> Deltas(const std::vector<AnswerPart>& parts);

 private:
  std::string content_, reasoning_;
  std::vector<AnswerPart> calls_;       // each with its id, its name ...
  std::vector<std::string> arguments_;  // ... and its arguments
  int64_t n_calls_ = 0;                 // in deltas
};

}  // namespace weir
