// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Continues a text, in an answer pot.
#include <utility>

#include "serve/answer_sender.h"
#include "serve/reply.h"
#include "serve/routes/route.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) {
  const auto body = ParseJsonObject(call.body);
  if (!body.ok()) return SendError(body.status(), response);
  auto request = ParseCompletion(call.host, *body, call.options.answers);
  if (!request.ok()) return SendError(request.status(), response);
  SendAnswers(call.host, "", *std::move(request), AnswerShape::Kind::kCompletion, response);
}

}  // namespace

extern const RouteInfo kCompletions;
const RouteInfo kCompletions = {
    .method = "POST",
    .path = "/v1/completions",
    .handle = Handle,
};

}  // namespace weir
