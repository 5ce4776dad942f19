// SPDX-License-Identifier: Apache-2.0
// Addresses that the server sends requests to, and what their answers ask for.
#pragma once

#include <httplib.h>

#include <chrono>
#include <optional>
#include <string>

namespace weir {

struct HttpAddress {
  std::string origin, path;  // "https://host:port", "/path"
};

// "https://host:port/path"; nullopt for anything else, such as one with a user or a question mark in the host.
std::optional<HttpAddress> ParseHttpAddress(const std::string& text);

// The header Retry-After in seconds, an hour at most; 0: there is none, or it is a date.
std::chrono::seconds RetryAfter(const httplib::Response& response);

}  // namespace weir
