// SPDX-License-Identifier: Apache-2.0
// Errors in the shape of the OpenAI API.
#pragma once

#include <string>

#include "base/status.h"
#include "io/json.h"

namespace weir {

// An HTTP status, and {"error": {"message", "type", "param", "code"}} as its body. A message that begins with a name in
// single quotes is about that parameter.
struct ApiError {
  int http = 500;
  std::string code;  // null in the body if empty
  std::string message;

  Json Body() const;
};

// The error whose Body() was sent with `http`.
ApiError ErrorOfBody(int http, const std::string& body);
// The error for a bare HTTP status.
ApiError OfHttp(int http);
// Maps a Status to HTTP: 400 for a request that cannot be honoured, 404 for not found, 429 for what does not fit now,
// 503 if the server is stopping and nothing was done, 500 for the rest.
ApiError FromStatus(const Status& status);
// Work on a session was stopped midway: 409, `cut_short`. Not 503, which lets proxies retry the request on another
// server: the session already holds a part of it.
ApiError CutShort(const Status& status);
// The same status with `folder` removed from its message, so that clients do not see server paths.
Status WithoutFolder(const Status& status, const std::string& folder);
// The prompt does not fit into a pot that may not forget.
ApiError ContextLengthExceeded(const Status& status);

}  // namespace weir
