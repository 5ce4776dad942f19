// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Adds a rule to a session: something to watch its stream for.
#include <utility>

#include "serve/call_job.h"
#include "serve/reply.h"
#include "serve/routes/common.h"
#include "serve/routes/route.h"
#include "serve/rule_request.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) {
  const auto body = ParseJsonObject(call.body);
  if (!body.ok()) return SendError(body.status(), response);
  auto rule = ParseRuleRequest(call.host, *body);
  if (!rule.ok()) return SendError(rule.status(), response);
  Json out;
  const Status status = CallWithSession(
      call.host, call.arguments[0],
      [&](StreamSession& stream) -> Status {
        WEIR_ASSIGN_OR_RETURN(out, AddRule(stream, *std::move(rule)));
        return Status();
      },
      ClientWaits);
  if (status.code() == StatusCode::kUnsupported) return SendError({400, "", status.message()}, response);
  if (!status.ok()) return SendError(status, response);
  SendJson(out, response, 201);
}

}  // namespace

extern const RouteInfo kAddRule;
const RouteInfo kAddRule = {
    .method = "POST",
    .path = "/v1/sessions/{id}/rules",
    .handle = Handle,
};

}  // namespace weir
