// SPDX-License-Identifier: Apache-2.0
// Answers to requests.
#pragma once

#include <string>

#include "io/json.h"
#include "serve/api_error.h"
#include "serve/http_server.h"

namespace weir {

void SendJson(const Json& json, httplib::Response& response, int http = 200);
// The same for text that is already JSON.
void SendJsonText(std::string text, httplib::Response& response, int http = 200);
void SendError(const ApiError& error, httplib::Response& response);
// Tells the clients of OpenAI and Anthropic, which send a request again after most errors, not to: a session holds a
// part of it. Every 409 does.
void ForbidRetry(httplib::Response& response);
// Tells clients and proxies that nothing was done, and that the request may be sent again, here or elsewhere. Every 503
// does, unless ForbidRetry() came first.
void AllowRetry(httplib::Response& response);
// Sends the error of FromStatus(). REQUIRES: !status.ok().
void SendError(const Status& status, httplib::Response& response);

}  // namespace weir
