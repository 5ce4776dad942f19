// SPDX-License-Identifier: Apache-2.0
#include "serve/body_reader.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace weir {
namespace {

// The first bytes of each body do not count towards the limit for all requests, so that ordinary requests are answered
// while large ones fill it.
constexpr int64_t kUncountedBytes = 1 << 16;

bool SameWord(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return (x >= 'A' && x <= 'Z' ? x + 32 : x) == y; });
}

}  // namespace

ApiError CheckFraming(const httplib::Request& request) {
  constexpr std::string_view kLength = "content-length", kEncoding = "transfer-encoding";
  int n_lengths = 0, n_encodings = 0;
  for (const auto& [name, value] : request.headers) {
    const std::string_view bare = std::string_view(name).substr(0, name.find_first_of(" \t"));
    if (bare.size() != name.size()) return {400, "", "a header's name must not have white space in it"};
    if (SameWord(name, kLength)) {
      ++n_lengths;
      const bool digits = !value.empty() && value.find_first_not_of("0123456789") == value.npos;
      if (!digits) return {400, "", "'Content-Length' must be a whole number"};
    } else if (SameWord(name, kEncoding)) {
      ++n_encodings;
      if (!SameWord(value, "chunked")) return {400, "", "'Transfer-Encoding' must be 'chunked'"};
    }
  }
  if (n_lengths + n_encodings > 1) return {400, "", "the head says in more than one way where the body ends"};
  return {0, "", ""};
}

ApiError ReadBody(const httplib::Request& request, const httplib::ContentReader& read, int64_t max_bytes,
                  std::string* body) {
  if (request.is_multipart_form_data()) return {415, "", "the body must be JSON, not a form"};
  if (request.has_header("Content-Encoding")) return {415, "", "the body must not be compressed"};
  // No length, no content: the library would wait for the connection's end.
  if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding")) return {0, "", ""};
  const size_t most = static_cast<size_t>(max_bytes);
  const uint64_t length = request.get_header_value<uint64_t>("Content-Length");
  if (length > most) return OfHttp(413);
  int64_t counted = kUncountedBytes;
  const auto count = [&](int64_t n_bytes) {
    if (n_bytes <= counted) return Status();
    return HttpConnection::Current()->Take(n_bytes - std::exchange(counted, n_bytes));
  };
  Status room = count(static_cast<int64_t>(length));
  if (!room.ok()) return FromStatus(room);
  body->reserve(length);
  bool too_large = false;
  const bool whole = read([&](const char* data, size_t n) {
    const size_t size = body->size() + n;
    too_large = size > most;
    if (too_large) return false;
    // A body without a length is counted as it grows, in doubling steps.
    if (static_cast<int64_t>(size) > counted) room = count(static_cast<int64_t>(std::min(2 * size, most)));
    if (room.ok()) body->append(data, n);
    return room.ok();
  });
  if (too_large) return OfHttp(413);
  if (!room.ok()) return FromStatus(room);
  if (!whole) return {400, "", "the body did not arrive completely and in time"};
  return {0, "", ""};
}

}  // namespace weir
