// SPDX-License-Identifier: Apache-2.0
// Answers to requests.
#pragma once

#include <string>

#include "io/json.h"
#include "serve/api_error.h"
#include "serve/http_server.h"

namespace weir {

void SendJson(const Json& json, httplib::Response& response, int http = 200);
// The same of what is JSON already.
void SendJsonText(std::string text, httplib::Response& response, int http = 200);
void SendError(const ApiError& error, httplib::Response& response);
// As FromStatus() has it. REQUIRES: !status.ok().
void SendError(const Status& status, httplib::Response& response);

}  // namespace weir
