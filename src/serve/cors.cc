// SPDX-License-Identifier: Apache-2.0
#include "serve/cors.h"

#include <algorithm>
#include <string>

namespace weir {

bool AnswerOrigin(const OriginRules& rules, const httplib::Request& request, httplib::Response& response) {
  const std::string origin = request.get_header_value("Origin");
  if (!rules.Allows(origin)) return false;
  response.set_header("Access-Control-Allow-Origin", origin);
  response.set_header("Vary", "Origin");
  response.set_header("Access-Control-Expose-Headers",
                      "Retry-After, x-session-id, Mcp-Session-Id, x-should-retry, traceresponse");
  if (request.method != "OPTIONS" || !request.has_header("Access-Control-Request-Method")) return false;
  const std::string headers = request.get_header_value("Access-Control-Request-Headers");
  const bool fine = !headers.empty() && std::all_of(headers.begin(), headers.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == ',' ||
           c == ' ';
  });
  response.set_header("Access-Control-Allow-Methods", "GET, POST, DELETE");
  response.set_header("Access-Control-Allow-Headers", fine ? headers : "Authorization, Content-Type");
  response.set_header("Access-Control-Max-Age", "600");
  response.status = 204;
  return true;
}

}  // namespace weir
