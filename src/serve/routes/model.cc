// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// The one model, by its name.
#include "serve/reply.h"
#include "serve/routes/common.h"
#include "serve/routes/route.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) {
  const std::string& name = call.arguments[0];
  if (name != call.host.options().model_name) {
    return SendError({404, "model_not_found", "there is no model '" + name + "' here"}, response);
  }
  SendJson(ModelJson(call.host), response);
}

}  // namespace

extern const RouteInfo kModel;
const RouteInfo kModel = {
    .method = "GET",
    .path = "/v1/models/{model}",
    .handle = Handle,
};

}  // namespace weir
