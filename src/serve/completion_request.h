// SPDX-License-Identifier: Apache-2.0
// What a request for answers asks, whichever API it came through: a chat, texts to continue, or a question to a
// session. The adapters of src/serve/apis make it of a body; serve/answer_sender.h answers it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "serve/answer_job.h"
#include "text/sampler.h"

namespace weir {

// Defaults for fields that a request leaves out.
struct AnswerDefaults {
  SamplerOptions sampler;        // except its seed
  std::optional<uint64_t> seed;  // nullopt: a different one for each request
  int64_t max_tokens = 1024;     // of chats and of questions to sessions; -1: until the model ends its answer
};

struct CompletionRequest {
  std::vector<AnswerRequest> answers;  // one for each prompt
  std::vector<std::string> echoes;     // the prompts as text, if they are to be echoed; else empty
  int n = 1;                           // answers per prompt, with consecutive seeds that start at the request's
  bool stream = false, include_usage = false;
  bool timings_per_token = false;  // of a stream: what was read and written so far, in each chunk
  bool logprobs = false;
  int n_top = 0;  // alternatives to show beside each token
  // Log-likelihoods that the server may hold at once: of an answer that is not streamed, and of prompts.
  int64_t n_likelihoods = 0;
};

}  // namespace weir
