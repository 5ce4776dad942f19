// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Renders a chat as the text that the model would read.
#include "serve/openai_request.h"
#include "serve/reply.h"
#include "serve/routes/route.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) {
  const auto body = ParseJsonObject(call.body);
  if (!body.ok()) return SendError(body.status(), response);
  const auto prompt = RenderChat(call.host, *body);
  if (!prompt.ok()) return SendError(prompt.status(), response);
  SendJson({{"prompt", *prompt}}, response);
}

}  // namespace

extern const RouteInfo kApplyTemplate;
const RouteInfo kApplyTemplate = {
    .method = "POST",
    .path = "/apply-template",
    .handle = Handle,
};

}  // namespace weir
