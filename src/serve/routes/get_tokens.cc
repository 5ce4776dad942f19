// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Returns what a short part of a session's stream says, as far as its pot and its archive have it.
#include <cstdint>

#include "serve/call_job.h"
#include "serve/reply.h"
#include "serve/routes/common.h"
#include "serve/routes/route.h"
#include "serve/stream_part.h"

namespace weir {
namespace {

constexpr int64_t kMostTokens = 1024;

Result<Json> Tokens(const Call& call) {
  WEIR_ASSIGN_OR_RETURN(const int64_t from, NumberParam(call.http, "from", 0, 0, kMaxSeq));
  WEIR_ASSIGN_OR_RETURN(const int64_t to, NumberParam(call.http, "to", from + kMostTokens, from, from + kMostTokens));
  Result<Json> part = Json();
  WEIR_RETURN_IF_ERROR(LookAtSession(call.host, call.arguments[0], [&](const StreamSession& stream) {
    part = StreamPart(stream, {from, to}, call.host.tokenizer());
  }));
  return part;
}

void Handle(const Call& call, httplib::Response& response) {
  const auto part = Tokens(call);
  if (!part.ok()) return SendError(part.status(), response);
  SendJson(*part, response);
}

}  // namespace

extern const RouteInfo kGetTokens;
const RouteInfo kGetTokens = {
    .method = "GET",
    .path = "/v1/sessions/{id}/tokens",
    .handle = Handle,
};

}  // namespace weir
