// SPDX-License-Identifier: Apache-2.0
// Generates an answer in one call: steps an Answerer (chat/answerer.h) until it is done.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "chat/answerer.h"

namespace weir {

struct GenerateOptions : AnswerOptions {
  const std::atomic<bool>* stop = nullptr;  // checked before every token
  std::span<const int32_t> shown;           // Answerer::Show()
};

struct GenerateResult {
  std::string text;
  std::vector<int32_t> tokens;  // generated, including the end token if there was one
  StopReason reason = StopReason::kMaxTokens;
  Status full;                  // kPotFull: why the last token could not be read
  bool end_token_read = false;  // the session has read the end token, which ended the answer
  double first_token_ms = 0;    // from the call to the first token
  double tokens_per_s = 0;      // after the first token
};

// Continues the session. `on_text` receives whole characters as they become complete. A full pot that may not shrink
// ends the answer with kPotFull; other failures are returned as errors.
Result<GenerateResult> Generate(Session& session, Sampler& sampler, const Tokenizer& tokenizer,
                                const GenerateOptions& options, const std::function<void(const std::string&)>& on_text);

}  // namespace weir
