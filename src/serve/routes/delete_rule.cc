// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Removes a rule from a session. Its events stay in the stream of events.
#include "serve/call_job.h"
#include "serve/reply.h"
#include "serve/routes/common.h"
#include "serve/routes/route.h"
#include "serve/rule_request.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) {
  const std::string& rule = call.arguments[1];
  const Status status = CallWithSession(
      call.host, call.arguments[0], [&](StreamSession& stream) { return RemoveRule(call.host, stream, rule); },
      ClientWaits);
  if (!status.ok()) return SendError(status, response);
  SendJson({{"id", rule}, {"object", "rule"}, {"deleted", true}}, response);
}

}  // namespace

extern const RouteInfo kDeleteRule;
const RouteInfo kDeleteRule = {
    .method = "DELETE",
    .path = "/v1/sessions/{id}/rules/{rule}",
    .handle = Handle,
};

}  // namespace weir
