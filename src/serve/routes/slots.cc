// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// The answer pots, as clients of llama-server look at its slots. They belong to no client, so they are only counted.
#include <utility>

#include "serve/call_job.h"
#include "serve/reply.h"
#include "serve/routes/route.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) {
  int64_t n = 0, n_busy = 0;
  const Status status = CallEngine(call.host, [&] {
    n = call.host.pots().n();
    n_busy = n - call.host.pots().n_free();
    return Status();
  });
  if (!status.ok()) return SendError(status, response);
  Json list = Json::array();
  for (int64_t i = 0; i < n; ++i) {
    list.push_back({{"id", i}, {"n_ctx", call.host.plan().pot_slots}, {"is_processing", i < n_busy}});
  }
  SendJson(list, response);
}

}  // namespace

extern const RouteInfo kSlots;
const RouteInfo kSlots = {
    .method = "GET",
    .path = "/slots",
    .handle = Handle,
};

}  // namespace weir
