// SPDX-License-Identifier: Apache-2.0
// Which web pages may use the server. A browser sends requests on behalf of every page its user visits, from the user's
// machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/api_error.h"

namespace weir {

class OriginRules {
 public:
  // `allowed`: origins as browsers name them, "https://app.example"; "*" allows all. `address`: the address that the
  // server listens on.
  OriginRules(std::vector<std::string> allowed, bool has_key, std::string_view address);

  // Checks the headers Origin and Host, empty if missing; http 0: accepted. If the server has a key, nothing is refused
  // here: a page cannot know the key unless it was given it. Without a key, a page must be the server's own or an
  // allowed one, and a server that listens only on this machine accepts only this machine's names as Host, because any
  // DNS name can be made to resolve to it (DNS rebinding).
  ApiError Check(std::string_view origin, std::string_view host) const;
  // Whether a page of that origin is on the allowed list, so that its browser needs the CORS headers.
  bool Allows(std::string_view origin) const;

 private:
  const std::vector<std::string> allowed_;
  const bool has_key_, local_;
};

// Whether a text is an origin, or "*".
bool IsOrigin(std::string_view text);

}  // namespace weir
