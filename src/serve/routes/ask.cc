// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Answers a question to a session.
#include <memory>
#include <utility>

#include "serve/answer_sender.h"
#include "serve/answer_shape.h"
#include "serve/openai_request.h"
#include "serve/reply.h"
#include "serve/routes/route.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) {
  const auto body = ParseJsonObject(call.body);
  if (!body.ok()) return SendError(body.status(), response);
  auto request = ParseAsk(call.host, *body, call.options.answers);
  if (!request.ok()) return SendError(request.status(), response);
  auto shape = std::make_unique<AnswerShape>(call.host, AnswerShape::Kind::kChat, *request);
  SendAnswers(call.host, call.arguments[0], *std::move(request), std::move(shape), response);
}

}  // namespace

extern const RouteInfo kAsk;
const RouteInfo kAsk = {
    .method = "POST",
    .path = "/v1/sessions/{id}/ask",
    .handle = Handle,
};

}  // namespace weir
