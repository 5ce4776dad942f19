// SPDX-License-Identifier: Apache-2.0
#include "serve/reply.h"

#include <utility>

namespace weir {

void SendJsonText(std::string text, httplib::Response& response, int http) {
  response.status = http;
  response.set_content("", 0, "application/json");
  response.body = std::move(text);  // not copied: answers may be large
}

void SendJson(const Json& json, httplib::Response& response, int http) {
  SendJsonText(JsonText(json) + "\n", response, http);
}

void ForbidRetry(httplib::Response& response) {
  if (!response.has_header("x-should-retry")) response.set_header("x-should-retry", "false");
}

void AllowRetry(httplib::Response& response) {
  if (!response.has_header("x-should-retry")) response.set_header("x-should-retry", "true");
}

void SendError(const ApiError& error, httplib::Response& response) {
  if (error.http == 429 || error.http == 503) response.set_header("Retry-After", "1");
  if (error.http == 503) AllowRetry(response);
  if (error.http == 409) ForbidRetry(response);
  SendJson(error.Body(), response, error.http);
}

void SendError(const Status& status, httplib::Response& response) { SendError(FromStatus(status), response); }

}  // namespace weir
