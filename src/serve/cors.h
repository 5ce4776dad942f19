// SPDX-License-Identifier: Apache-2.0
// What browsers ask before a page of another site may use the server (cross-origin resource sharing).
#pragma once

#include "serve/http_server.h"
#include "serve/origin.h"

namespace weir {

// Tells the browser of an allowed page so; errors need that too. True for a preflight request, which brings no key: the
// response is then complete.
bool AnswerOrigin(const OriginRules& rules, const httplib::Request& request, httplib::Response& response);

}  // namespace weir
