// SPDX-License-Identifier: Apache-2.0
// Requests of the OpenAI API, checked field by field: what is known is read, what is unknown or unsupported is refused
// by name.
//
// Shapes: platform.openai.com/docs/api-reference, chat and completions. Beyond them: top_k, min_p, repeat_penalty,
// repeat_last_n, ignore_eos, cache_prompt. docs/server.md lists what is not supported.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/json.h"
#include "serve/answer_job.h"
#include "serve/host.h"

namespace weir {

// What holds where a request says nothing.
struct AnswerDefaults {
  SamplerOptions sampler;        // but for its seed
  std::optional<uint64_t> seed;  // nullopt: another one for each request
  int64_t max_tokens = 1024;     // of chats and of questions to sessions; -1: until the model ends its answer
};

struct CompletionRequest {
  std::vector<AnswerRequest> answers;  // one for each prompt
  std::vector<std::string> echoes;     // the prompts as text, where they are to be repeated; else empty
  int n = 1;                           // answers to each prompt, with seeds from the request's on
  bool stream = false, include_usage = false;
  bool logprobs = false;
  int n_top = 0;  // alternatives to show beside each token
  // Likelihoods that the server may hold at once: of an answer that is not streamed, and of prompts.
  int64_t n_likelihoods = 0;
};

// What a chat, a completion and a session's question have in common. Fills request->answers[0] but for its prompt.
// `n_vocab`: of the model whose tokens may have a bias.
void GetSampling(Fields& fields, const AnswerDefaults& defaults, int32_t n_vocab, CompletionRequest* request);

// POST /v1/chat/completions. kInvalidArgument also for a model without a chat template.
Result<CompletionRequest> ParseChat(const Host& host, const Json& body, const AnswerDefaults& defaults);
// POST /apply-template: what a chat's model would read, as text; pictures are their marks. Errors as ParseChat().
Result<std::string> RenderChat(const Host& host, const Json& body);
// POST /v1/completions: the prompt is a text, a list of texts, of token ids, or of lists of token ids. 16 tokens are
// the API's own limit where a request names none; defaults.max_tokens is not used.
Result<CompletionRequest> ParseCompletion(const Host& host, const Json& body, const AnswerDefaults& defaults);
// POST /v1/sessions/{id}/ask.
Result<CompletionRequest> ParseAsk(const Host& host, const Json& body, const AnswerDefaults& defaults);

}  // namespace weir
