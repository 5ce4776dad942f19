// SPDX-License-Identifier: Apache-2.0
// Which web pages may use the server. A browser sends requests for every page its user visits, and from his machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/api_error.h"

namespace weir {

class OriginRules {
 public:
  // `allowed`: origins as browsers name them, "https://app.example"; "*" is every one. `address`: what the server
  // listens on.
  OriginRules(std::vector<std::string> allowed, bool has_key, std::string_view address);

  // Of the headers Origin and Host, empty where they are missing; http 0: go on. With a key nothing is refused here:
  // no page has it that was not given it. Without one, a page must be the server's own or an allowed one, and a server
  // that only this machine reaches answers to no name but this machine's: any name can be made to lead here.
  ApiError Check(std::string_view origin, std::string_view host) const;
  // Whether a page of that origin was allowed by name: its browser has to be told so.
  bool Allows(std::string_view origin) const;

 private:
  const std::vector<std::string> allowed_;
  const bool has_key_, local_;
};

// Whether a text is an origin, or "*".
bool IsOrigin(std::string_view text);

}  // namespace weir
