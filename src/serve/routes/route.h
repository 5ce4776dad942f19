// SPDX-License-Identifier: Apache-2.0
// The contract of a route: one method of one path of the server.
//
// A route is one file of this folder whose first line is `// weir-plugin: route`. It defines a RouteInfo named after
// the file (list_sessions.cc defines kListSessions) and the function that answers; the build makes the table of them
// (cmake/weir.cmake). docs/openapi.yaml describes every route, and a test compares it with the table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api_error.h"
#include "serve/host.h"
#include "serve/http_server.h"
#include "serve/server_options.h"

namespace weir {

// One request with its body, and the objects that a handler may use.
struct Call {
  Host& host;
  const ServerOptions& options;
  const httplib::Request& http;
  std::string body;
  std::vector<std::string> arguments;  // values of the path's {names}, in order
};

enum class KeyRule {
  kAlways,   // refused without a key, if the server has any
  kIfGiven,  // answered without a key, but a wrong key is refused, so that clients can test theirs
  kNever,    // open to all clients and all pages
};

struct RouteInfo {
  const char* method;  // GET (HEAD comes with it), POST or DELETE
  const char* path;    // as in docs/openapi.yaml: {name} matches one segment
  // Fills in the whole answer, errors included (serve/reply.h), on the request's own thread.
  void (*handle)(const Call& call, httplib::Response& response);
  const char* other_path = "";  // an alias, as in llama-server; empty: none
  KeyRule key = KeyRule::kAlways;
  // Words an error as the route's API does; nullptr: as the OpenAI API.
  Json (*error_body)(const ApiError& error) = nullptr;
  bool urgent = false;         // answered even while every thread is busy: it takes no body and waits for nothing
  bool when_draining = false;  // answered, not refused, while the server shuts down: it only says how the server is
  // The session that a request works on, where neither the path nor x-session-id names it; empty: none. nullptr: there
  // is no other way to name one.
  std::string (*session)(const Call& call) = nullptr;

  // Whether it works on the session that its path names, arguments[0]. The server may first take over the session of a
  // request from another server, and hands it over when it drains (serve/drain.h).
  bool of_session() const { return std::string_view(path).starts_with("/v1/sessions/{id}"); }
};

// Every route that is a file of this folder, in unspecified order. AllRoutes() (serve/router.h) has the APIs', too.
std::span<const RouteInfo* const> AllRouteInfos();

}  // namespace weir
