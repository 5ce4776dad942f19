// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Describes one session and what it holds.
#include "serve/call_job.h"
#include "serve/reply.h"
#include "serve/routes/route.h"
#include "serve/session_json.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) {
  Json state;
  // Does not wait for the session's jobs: its state can be read while it reads.
  const Status status = LookAtSession(call.host, call.arguments[0], [&](const StreamSession& stream) {
    state = SessionJson(stream);
    state["busy"] = stream.busy;
  });
  if (!status.ok()) return SendError(status, response);
  SendJson(state, response);
}

}  // namespace

extern const RouteInfo kGetSession;
const RouteInfo kGetSession = {
    .method = "GET",
    .path = "/v1/sessions/{id}",
    .handle = Handle,
};

}  // namespace weir
