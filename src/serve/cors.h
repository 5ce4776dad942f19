// SPDX-License-Identifier: Apache-2.0
// Cross-origin resource sharing (CORS): lets pages of other sites use the server.
#pragma once

#include "serve/http_server.h"
#include "serve/origin.h"

namespace weir {

// Sets the CORS headers for an allowed page; errors need them too. True for a preflight request, which carries no key:
// the response is then complete.
bool AnswerOrigin(const OriginRules& rules, const httplib::Request& request, httplib::Response& response);

}  // namespace weir
