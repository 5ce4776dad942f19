// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Readiness: whether new work that is sent here is begun. `?exclude=room` leaves a check out, as Kubernetes' own
// servers do.
#include <string>

#include "serve/reply.h"
#include "serve/routes/route.h"

namespace weir {
namespace {

// http 0: ready. Waits for nothing.
ApiError NotReady(const Call& call) {
  const auto left_out = [&](const char* check) {
    for (size_t i = 0; i < call.http.get_param_value_count("exclude"); ++i) {
      if (call.http.get_param_value("exclude", i) == check) return true;
    }
    return false;
  };
  Host& host = call.host;
  if (host.draining()) return {503, "draining", "this server is shutting down"};
  if (!left_out("queue") && host.scheduler().n_waiting() >= host.options().max_waiting) {
    return {503, "queue_full", "as many requests wait as may wait"};
  }
  if (!left_out("room") && !host.HasRoom()) {
    return {503, "no_room", "the budget has no room for another session"};
  }
  return {0, "", ""};
}

void Handle(const Call& call, httplib::Response& response) {
  if (const ApiError why = NotReady(call); why.http != 0) return SendError(why, response);
  SendJson({{"status", "ok"}}, response);
}

}  // namespace

extern const RouteInfo kReadyz;
const RouteInfo kReadyz = {
    .method = "GET",
    .path = "/readyz",
    .handle = Handle,
    .key = KeyRule::kNever,
    .urgent = true,
    .when_draining = true,
};

}  // namespace weir
