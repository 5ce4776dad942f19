// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Serves the web page, which is self-contained.
#include "serve/page.h"
#include "serve/reply.h"
#include "serve/routes/route.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) {
  // Nothing else may be loaded, and no other site may frame it.
  response.set_header("Content-Security-Policy",
                      "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
                      "img-src 'self' data: blob:; media-src blob:; base-uri 'none'; form-action 'none'; "
                      "frame-ancestors 'none'");
  response.set_header("X-Content-Type-Options", "nosniff");
  response.set_header("Cache-Control", "no-cache");
  response.set_content(kPage.data(), kPage.size(), "text/html; charset=utf-8");
}

}  // namespace

extern const RouteInfo kWebPage;
const RouteInfo kWebPage = {
    .method = "GET",
    .path = "/",
    .handle = Handle,
    .key = KeyRule::kNever,
};

}  // namespace weir
