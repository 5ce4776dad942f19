// SPDX-License-Identifier: Apache-2.0
// The contract of a route: one method of one path of the server.
//
// A route is one file of this folder whose first line is `// weir-plugin: route`. It defines a RouteInfo named after
// the file (list_sessions.cc defines kListSessions) and the function that answers; the build makes the table of them
// (cmake/weir.cmake). docs/openapi.yaml describes every route, and a test holds it to the table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "serve/host.h"
#include "serve/http_server.h"
#include "serve/server_options.h"

namespace weir {

// One request, its body read, and what it may use.
struct Call {
  Host& host;
  const ServerOptions& options;
  const httplib::Request& http;
  std::string body;
  std::vector<std::string> arguments;  // what stands for the {names} of the path, in order
};

enum class KeyRule {
  kAlways,   // refused without a key, where the server has any
  kIfGiven,  // answered without one, but a wrong one is refused: clients try theirs with it
  kNever,    // open to everybody and to every page
};

struct RouteInfo {
  const char* method;  // GET (HEAD comes with it), POST or DELETE
  const char* path;    // as docs/openapi.yaml has it: {name} stands for one part
  // Fills in the whole answer, errors included (serve/reply.h), on the request's own thread.
  void (*handle)(const Call& call, httplib::Response& response);
  const char* other_path = "";  // a second path for the same, as llama-server has it; empty: none
  KeyRule key = KeyRule::kAlways;

  // Whether it works on the session that its path names, arguments[0]. Such a session may be taken over from another
  // server before, and handed over when this one drains (serve/drain.h).
  bool of_session() const { return std::string_view(path).starts_with("/v1/sessions/{id}"); }
};

// Every route, in no order that matters.
std::span<const RouteInfo* const> AllRouteInfos();

}  // namespace weir
