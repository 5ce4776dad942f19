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
  // The routes outlive it.
  explicit Router(std::span<const RouteInfo* const> routes);

  struct Match {
    const RouteInfo* route = nullptr;
    std::vector<std::string> arguments;  // what stands for the route's {names}
    std::string allowed;                 // without a route: methods that the path takes, "GET, POST"; empty: none
  };
  // A path that is written out wins over one with a {name}. HEAD is answered as GET.
  Match Find(std::string_view method, std::string_view path) const;
  // Of any method of that path; kAlways for a path that no route has.
  KeyRule KeyOf(std::string_view path) const;

 private:
  std::vector<const RouteInfo*> routes_;
};

// For a path that no route has: 404, and where there is something like it, what to ask instead.
ApiError NotServed(std::string_view path);

}  // namespace weir
