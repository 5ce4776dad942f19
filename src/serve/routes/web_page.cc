// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Serves the web page.
#include "serve/page_reply.h"
#include "serve/routes/route.h"

namespace weir {
namespace {

void Handle(const Call&, httplib::Response& response) { SendPageFile("index.html", response); }

}  // namespace

extern const RouteInfo kWebPage;
const RouteInfo kWebPage = {
    .method = "GET",
    .path = "/",
    .handle = Handle,
    .key = KeyRule::kNever,
};

}  // namespace weir
