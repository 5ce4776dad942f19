// SPDX-License-Identifier: Apache-2.0
// The contract of an API that clients of another server or service speak: the adapter between its bodies and what this
// server does.
//
// An API is one file of this folder whose first line is `// weir-plugin: api`. It defines an ApiInfo named after the
// file (ollama.cc defines kOllama) and its routes; the build makes the table of them (cmake/weir.cmake). A handler
// reads a body into a CompletionRequest and answers it through a ReplyShape of the API's own words.
#pragma once

#include <span>

#include "serve/routes/route.h"

namespace weir {

struct ApiInfo {
  const char* name;
  std::span<const RouteInfo> routes;
};

// Every API, in unspecified order.
std::span<const ApiInfo* const> AllApiInfos();

}  // namespace weir
