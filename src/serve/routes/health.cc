// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Health check.
#include "serve/reply.h"
#include "serve/routes/route.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) { SendJson({{"status", "ok"}}, response); }

}  // namespace

extern const RouteInfo kHealth;
const RouteInfo kHealth = {
    .method = "GET",
    .path = "/health",
    .handle = Handle,
    .other_path = "/v1/health",
    .key = KeyRule::kNever,
    .urgent = true,
};

}  // namespace weir
