// The answer loop: logits, sampler, token, text, until something says stop.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/session.h"
#include "text/sampler.h"
#include "text/tokenizer.h"

namespace weir {

struct GenerateOptions {
  int64_t max_tokens = -1;                  // -1: until the model ends its answer
  bool ignore_eos = false;                  // go on after end-of-generation tokens
  bool show_special = false;                // control tokens appear in the text
  int64_t t_src_ms = 0;                     // of the tokens that are written
  const std::atomic<bool>* stop = nullptr;  // checked before every token
};

enum class StopReason { kEndOfGeneration, kMaxTokens, kStopped, kPotFull };
const char* StopReasonName(StopReason reason);

struct GenerateResult {
  std::string text;
  std::vector<int32_t> tokens;  // generated, the end token included when one came
  StopReason reason = StopReason::kMaxTokens;
  Status full;                  // kPotFull: why the last token could not be read
  bool end_token_read = false;  // the end token is part of the session: it was sampled, and ended the answer
  double first_token_ms = 0;    // from the call to the first token
  double tokens_per_s = 0;      // after the first token
};

// The sampler's next token. Where its options allow, no more than the logits that decide leave the device. Errors of
// Session::Logits() and Sampler::Sample().
Result<int32_t> DrawToken(Session& session, Sampler& sampler);

// Continues the session. `on_text` gets whole characters as they become complete. A pot that may not shrink ends the
// answer with kPotFull; other failures are errors.
Result<GenerateResult> Generate(Session& session, Sampler& sampler, const Tokenizer& tokenizer,
                                const GenerateOptions& options, const std::function<void(const std::string&)>& on_text);

}  // namespace weir
