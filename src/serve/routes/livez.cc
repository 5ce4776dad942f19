// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Liveness: the process answers. A server that shuts down or is full is alive; to end it would lose its sessions.
#include "serve/reply.h"
#include "serve/routes/route.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) { SendJson({{"status", "ok"}}, response); }

}  // namespace

extern const RouteInfo kLivez;
const RouteInfo kLivez = {
    .method = "GET",
    .path = "/livez",
    .handle = Handle,
    .key = KeyRule::kNever,
    .urgent = true,
    .when_draining = true,
};

}  // namespace weir
