// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Ends a session and frees its bytes.
#include "serve/call_job.h"
#include "serve/reply.h"
#include "serve/routes/route.h"
#include "serve/thread_book.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) {
  const std::string& id = call.arguments[0];
  if (const Status status = DeleteSession(call.host, id); !status.ok()) return SendError(status, response);
  call.host.threads().Forget(id);
  SendJson({{"id", id}, {"object", "session"}, {"deleted", true}}, response);
}

}  // namespace

extern const RouteInfo kDeleteSession;
const RouteInfo kDeleteSession = {
    .method = "DELETE",
    .path = "/v1/sessions/{id}",
    .handle = Handle,
};

}  // namespace weir
