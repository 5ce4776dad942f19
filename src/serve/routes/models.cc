// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// The one model, as a list.
#include <utility>

#include "serve/reply.h"
#include "serve/routes/common.h"
#include "serve/routes/route.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) {
  Json model = ModelJson(call.host);
  // If the server has a key and the request does not, only the name is sent.
  if (!call.options.api_keys.empty() && !call.http.has_header("Authorization") && !call.http.has_header("x-api-key")) {
    for (const char* key : {"meta", "capabilities", "max_model_len", "architecture"}) model.erase(key);
  }
  SendJson({{"object", "list"}, {"data", Json::array({std::move(model)})}}, response);
}

}  // namespace

extern const RouteInfo kModels;
const RouteInfo kModels = {
    .method = "GET",
    .path = "/v1/models",
    .handle = Handle,
    .other_path = "/models",
    .key = KeyRule::kIfGiven,
};

}  // namespace weir
