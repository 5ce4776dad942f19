// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Serves the files that the web page loads: modules, styles, a story.
#include "serve/page_reply.h"
#include "serve/routes/route.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) { SendPageFile(call.arguments[0], response); }

}  // namespace

extern const RouteInfo kWebPageFile;
const RouteInfo kWebPageFile = {
    .method = "GET",
    .path = "/page/{file}",
    .handle = Handle,
    .key = KeyRule::kNever,
};

}  // namespace weir
