// Requests of the OpenAI API, checked field by field: what is known is read, what is unknown or unsupported is refused
// by name.
//
// Shapes: platform.openai.com/docs/api-reference, chat and completions. Beyond them: top_k, min_p, repeat_penalty,
// repeat_last_n, ignore_eos, cache_prompt. docs/server.md lists what is not supported.
#pragma once

#include <string>
#include <vector>

#include "serve/answer_job.h"
#include "serve/host.h"
#include "serve/json.h"

namespace weir {

struct CompletionRequest {
  std::vector<AnswerRequest> answers;  // one for each prompt
  std::vector<std::string> echoes;     // the prompts as text, where they are to be repeated; else empty
  int n = 1;                           // answers to each prompt, with seeds from the request's on
  bool stream = false, include_usage = false;
  bool logprobs = false;
  int n_top = 0;  // alternatives to show beside each token
};

// What a chat, a completion and a session's question have in common. Fills request->answers[0] but for its prompt.
// `default_max_tokens`: where the request names none. `n_vocab`: of the model whose tokens may have a bias.
void GetSampling(Fields& fields, int64_t default_max_tokens, int32_t n_vocab, CompletionRequest* request);

// POST /v1/chat/completions. kInvalidArgument also for a model without a chat template.
Result<CompletionRequest> ParseChat(const Host& host, const Json& body, int64_t default_max_tokens);
// POST /v1/completions: the prompt is a text, a list of texts, of token ids, or of lists of token ids.
Result<CompletionRequest> ParseCompletion(const Host& host, const Json& body);
// POST /v1/sessions/{id}/ask.
Result<CompletionRequest> ParseAsk(const Host& host, const Json& body, int64_t default_max_tokens);

}  // namespace weir
