// SPDX-License-Identifier: Apache-2.0
#include "serve/http_address.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>

namespace weir {
namespace {

constexpr std::chrono::seconds kLongestRetryAfter{3600};

}  // namespace

std::optional<HttpAddress> ParseHttpAddress(const std::string& text) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!text.starts_with(scheme)) continue;
    const bool plain = std::ranges::all_of(text, [](unsigned char c) { return c > 0x20 && c < 0x7F && c != '#'; });
    const size_t slash = std::min(text.find('/', scheme.size()), text.size());
    const std::string host = text.substr(scheme.size(), slash - scheme.size());
    if (!plain || host.empty() || host.find_first_of("@?\\") != std::string::npos) return std::nullopt;
    return HttpAddress{text.substr(0, slash), slash == text.size() ? "/" : text.substr(slash)};
  }
  return std::nullopt;
}

std::chrono::seconds RetryAfter(const httplib::Response& response) {
  const std::string text = response.get_header_value("Retry-After");
  int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 0) return std::chrono::seconds(0);
  return std::min(std::chrono::seconds(std::min<int64_t>(seconds, kLongestRetryAfter.count())), kLongestRetryAfter);
}

}  // namespace weir
