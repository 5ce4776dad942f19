// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Lists all sessions and what they hold.
#include <utility>

#include "serve/call_job.h"
#include "serve/reply.h"
#include "serve/routes/route.h"
#include "serve/session_json.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) {
  Json list = Json::array();
  const Status status = CallEngine(call.host, [&] {
    for (const auto& [id, stream] : call.host.sessions().all()) list.push_back(SessionJson(*stream));
    return Status();
  });
  if (!status.ok()) return SendError(status, response);
  SendJson({{"object", "list"}, {"data", std::move(list)}}, response);
}

}  // namespace

extern const RouteInfo kListSessions;
const RouteInfo kListSessions = {
    .method = "GET",
    .path = "/v1/sessions",
    .handle = Handle,
};

}  // namespace weir
