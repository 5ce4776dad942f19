// SPDX-License-Identifier: Apache-2.0
// Chats, completions and questions to sessions: one way to answer, whole or as a stream of events.
#pragma once

#include <string>

#include "serve/answer_shape.h"
#include "serve/host.h"
#include "serve/http_server.h"
#include "serve/openai_request.h"

namespace weir {

// Has the request's prompts answered and fills in the response, in the way that the request wants it; errors included.
// An empty id: in an answer pot. Work ends when the client goes away.
void SendAnswers(Host& host, const std::string& id, CompletionRequest request, AnswerShape::Kind kind,
                 httplib::Response& response);

}  // namespace weir
