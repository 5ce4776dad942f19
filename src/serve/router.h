// SPDX-License-Identifier: Apache-2.0
// Which route a request is for.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api_error.h"
#include "serve/routes/route.h"

namespace weir {

class Router {
 public:
  // The routes must outlive it.
  explicit Router(std::span<const RouteInfo* const> routes);

  struct Match {
    const RouteInfo* route = nullptr;
    std::vector<std::string> arguments;  // values of the route's {names}
    std::string allowed;                 // without a route: methods that the path supports, "GET, POST"; empty: none
  };
  // A literal path takes precedence over one with a {name}. HEAD is answered as GET.
  Match Find(std::string_view method, std::string_view path) const;
  // The rule of the path, whatever the method; kAlways for a path without a route.
  KeyRule KeyOf(std::string_view path) const;

 private:
  std::vector<const RouteInfo*> routes_;
};

// Every route: those of src/serve/routes and of every API.
std::vector<const RouteInfo*> AllRoutes();

// The error for a path without a route: 404, and a hint if there is a similar route.
ApiError NotServed(std::string_view path);

}  // namespace weir
