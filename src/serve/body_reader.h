// SPDX-License-Identifier: Apache-2.0
// Reads a request's body within the server's limits.
#pragma once

#include <cstdint>
#include <string>

#include "serve/api_error.h"
#include "serve/http_server.h"

namespace weir {

// Checks how the head says where the body ends. http 0: in one way that everybody reads alike; otherwise 400. A proxy
// in front that reads a head otherwise would take part of a body for the next client's request.
ApiError CheckFraming(const httplib::Request& request);

// Reads the whole body into *body and counts its bytes towards the limit for all requests (HttpConnection::Take). http
// 0: success; otherwise 413 for more than `max_bytes`, 415 for a form or compressed bytes, 429 while other bodies fill
// the memory, 400 if it does not arrive whole.
ApiError ReadBody(const httplib::Request& request, const httplib::ContentReader& read, int64_t max_bytes,
                  std::string* body);

}  // namespace weir
