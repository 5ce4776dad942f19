// SPDX-License-Identifier: Apache-2.0
// Errors in the shape that clients of the OpenAI API know.
#pragma once

#include <string>

#include "base/status.h"
#include "io/json.h"

namespace weir {

// An HTTP status, and {"error": {"message", "type", "param", "code"}} as its body. A message that begins with a name in
// single quotes is about that parameter.
struct ApiError {
  int http = 500;
  std::string code;  // null in the body when empty
  std::string message;

  Json Body() const;
};

// What a bare HTTP status of an error says.
ApiError OfHttp(int http);
// What a Status means to a client: 400 for a request that cannot be honoured, 404 for what is not there, 429 for what
// does not fit now, 503 when the server stops and nothing was done, 500 for the rest.
ApiError FromStatus(const Status& status);
// Work on a session was stopped when it had begun: 409, `cut_short`. Not 503, which proxies take for leave to send the
// request to another server: the session holds a part of it.
ApiError CutShort(const Status& status);
// The same without `folder`: where it is on the server is nobody's business.
Status WithoutFolder(const Status& status, const std::string& folder);
// The prompt does not fit into a pot that may not forget.
ApiError ContextLengthExceeded(const Status& status);

}  // namespace weir
