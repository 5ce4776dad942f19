// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Returns what a session still holds of its stream, or of a part of it, over time and layers.
#include <cstdint>

#include "serve/call_job.h"
#include "serve/held_map.h"
#include "serve/reply.h"
#include "serve/routes/common.h"
#include "serve/routes/route.h"

namespace weir {
namespace {

constexpr int64_t kDefaultBins = 128, kMaxBins = 4096;

Result<Json> Held(const Call& call) {
  WEIR_ASSIGN_OR_RETURN(const int64_t n_bins, NumberParam(call.http, "bins", kDefaultBins, 1, kMaxBins));
  WEIR_ASSIGN_OR_RETURN(const int64_t from, NumberParam(call.http, "from", 0, 0, kMaxSeq));
  WEIR_ASSIGN_OR_RETURN(const int64_t to, NumberParam(call.http, "to", kMaxSeq, from, kMaxSeq));
  Json held;
  WEIR_RETURN_IF_ERROR(LookAtSession(call.host, call.arguments[0], [&](const StreamSession& stream) {
    held = HeldMap(stream, {from, to}, n_bins);
  }));
  return held;
}

void Handle(const Call& call, httplib::Response& response) {
  const auto held = Held(call);
  if (!held.ok()) return SendError(held.status(), response);
  SendJson(*held, response);
}

}  // namespace

extern const RouteInfo kGetHeld;
const RouteInfo kGetHeld = {
    .method = "GET",
    .path = "/v1/sessions/{id}/held",
    .handle = Handle,
};

}  // namespace weir
