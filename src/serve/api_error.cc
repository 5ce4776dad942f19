// SPDX-License-Identifier: Apache-2.0
#include "serve/api_error.h"

namespace weir {

Json ApiError::Body() const {
  const char* type = http == 401   ? "authentication_error"
                     : http == 403 ? "permission_error"
                     : http == 409 ? "conflict_error"
                     : http == 429 ? "rate_limit_error"
                     : http >= 500 ? "server_error"
                                   : "invalid_request_error";
  Json param;
  if (const size_t end = message.find('\'', 1); message.starts_with('\'') && end != std::string::npos) {
    param = message.substr(1, end - 1);
  }
  return {{"error",
           {{"message", message}, {"type", type}, {"param", param}, {"code", code.empty() ? Json() : Json(code)}}}};
}

ApiError ErrorOfBody(int http, const std::string& body) {
  ApiError out = OfHttp(http);
  const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  const auto text = [&](const char* key, std::string* to) {
    if (!json.is_object() || !json.contains("error") || !json["error"].is_object()) return;
    const auto it = json["error"].find(key);
    if (it != json["error"].end() && it->is_string()) *to = it->get<std::string>();
  };
  text("message", &out.message);
  text("code", &out.code);
  return out;
}

ApiError OfHttp(int http) {
  switch (http) {
    case 400:
      return {http, "", "the request is malformed"};
    case 404:
      return {http, "", "there is no such page"};
    case 413:
      return {http, "", "the body is larger than --max-body allows"};
    case 414:
      return {http, "", "the address is too long"};
    case 416:
      return {http, "", "ranges are not served"};
  }
  return {http, "", "the request failed"};
}

ApiError FromStatus(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return {400, "", status.message()};
    case StatusCode::kCorrupt:
      return {400, "corrupt", status.message()};
    case StatusCode::kUnsupported:
      return {400, "unsupported", status.message()};
    case StatusCode::kNotFound:
      return {404, "not_found", status.message()};
    case StatusCode::kOverBudget:
      return {429, "over_budget", status.message()};
    case StatusCode::kCancelled:
      return {503, "cancelled", status.message()};
    case StatusCode::kOk:
    case StatusCode::kIo:
    case StatusCode::kInternal:
      break;
  }
  return {500, "internal", status.message()};
}

ApiError CutShort(const Status& status) {
  return {409, "cut_short",
          status.message() + "; the session holds a part of this request; check it before you continue"};
}

Status WithoutFolder(const Status& status, const std::string& folder) {
  if (folder.empty()) return status;
  std::string message = status.message();
  for (size_t at; (at = message.find(folder + "/")) != std::string::npos;) message.erase(at, folder.size() + 1);
  return Status(status.code(), std::move(message));
}

ApiError ContextLengthExceeded(const Status& status) { return {400, "context_length_exceeded", status.message()}; }

}  // namespace weir
