// SPDX-License-Identifier: Apache-2.0
#include "serve/body_reader.h"

#include <algorithm>
#include <utility>

namespace weir {
namespace {

// The first bytes of each body do not count towards the limit for all requests, so that ordinary requests are answered
// while large ones fill it.
constexpr int64_t kUncountedBytes = 1 << 16;

}  // namespace

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
