// SPDX-License-Identifier: Apache-2.0
#include "serve/origin.h"

#include <algorithm>

namespace weir {
namespace {

bool IsDigitOrDot(char c) { return (c >= '0' && c <= '9') || c == '.'; }

// "localhost" or a loopback address, without a port.
bool IsThisMachine(std::string_view name) {
  if (name == "localhost" || name.ends_with(".localhost") || name == "::1" || name == "[::1]") return true;
  return name.starts_with("127.") && std::all_of(name.begin(), name.end(), IsDigitOrDot);
}

std::string_view WithoutPort(std::string_view host) {
  const size_t colon = host.rfind(':');
  const bool port = colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos;
  return port ? host.substr(0, colon) : host;
}

// The part after "scheme://"; empty if there is no scheme.
std::string_view HostOf(std::string_view origin) {
  const size_t slashes = origin.find("://");
  return slashes == std::string_view::npos ? std::string_view() : origin.substr(slashes + 3);
}

}  // namespace

OriginRules::OriginRules(std::vector<std::string> allowed, bool has_key, std::string_view address)
    : allowed_(std::move(allowed)), has_key_(has_key), local_(IsThisMachine(address)) {}

bool OriginRules::Allows(std::string_view origin) const {
  return !origin.empty() && std::any_of(allowed_.begin(), allowed_.end(),
                                        [&](const std::string& one) { return one == "*" || one == origin; });
}

ApiError OriginRules::Check(std::string_view origin, std::string_view host) const {
  if (has_key_) return {0, "", ""};
  if (local_ && !host.empty() && !IsThisMachine(WithoutPort(host))) {
    return {403, "foreign_host",
            "without --api-key this server accepts only localhost and its own address as host name"};
  }
  if (!origin.empty() && !Allows(origin) && (host.empty() || HostOf(origin) != host)) {
    return {403, "foreign_origin", "pages of other sites may use this server only with --api-key or --allow-origin"};
  }
  return {0, "", ""};
}

bool IsOrigin(std::string_view text) {
  const std::string_view host = HostOf(text);
  return text == "*" || (!host.empty() && host.find_first_of("/?# \t\r\n") == std::string_view::npos);
}

}  // namespace weir
