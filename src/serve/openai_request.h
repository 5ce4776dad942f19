// SPDX-License-Identifier: Apache-2.0
// Parses requests of the OpenAI API field by field; unknown or unsupported fields are refused by name.
//
// Shapes: platform.openai.com/docs/api-reference, chat and completions. Beyond them: top_k, min_p, repeat_penalty,
// repeat_last_n, ignore_eos, cache_prompt. docs/server.md lists what is not supported.
#pragma once

#include <string>

#include "io/json.h"
#include "serve/completion_request.h"
#include "serve/host.h"

namespace weir {

// Reads the fields that chats, completions and questions to sessions have in common. Fills request->answers[0] except
// its prompt. `n_vocab`: vocabulary size of the model, to check logit_bias.
void GetSampling(Fields& fields, const AnswerDefaults& defaults, int32_t n_vocab, CompletionRequest* request);

// POST /v1/chat/completions. kInvalidArgument also for a model without a chat template, and for tools.
Result<CompletionRequest> ParseChat(const Host& host, const Json& body, const AnswerDefaults& defaults);
// POST /apply-template: the text that the model would read for a chat, with marks in place of pictures; with the
// request's tools, if the template reads them. Errors as ParseChat().
Result<std::string> RenderChat(const Host& host, const Json& body);
// POST /v1/completions: the prompt is a text, a list of texts, of token ids, or of lists of token ids. Without
// max_tokens the API's own limit of 16 tokens applies; defaults.max_tokens is not used.
Result<CompletionRequest> ParseCompletion(const Host& host, const Json& body, const AnswerDefaults& defaults);
// POST /v1/sessions/{id}/ask.
Result<CompletionRequest> ParseAsk(const Host& host, const Json& body, const AnswerDefaults& defaults);

}  // namespace weir
