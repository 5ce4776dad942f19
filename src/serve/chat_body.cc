// SPDX-License-Identifier: Apache-2.0
#include "serve/chat_body.h"

#include <fmt/core.h>
#include <utility>

#include "serve/openai_request.h"

namespace weir {

void ChatBody::Take(Fields& fields, const char* theirs, const char* ours) {
  if (const Json* const value = fields.Get(theirs); value != nullptr) Set(ours, *value, theirs);
}

void ChatBody::Set(const std::string& ours, Json value, const std::string& theirs) {
  fields_[ours] = std::move(value);
  if (ours != theirs) names_[ours] = theirs;
}

void ChatBody::Add(Json message, const std::string& where) {
  names_[fmt::format("messages[{}]", messages_.size())] = where;
  where_.push_back(where);
  messages_.push_back(std::move(message));
}

Result<CompletionRequest> ChatBody::Parse(const Host& host, const AnswerDefaults& defaults) {
  Json body = std::move(fields_);
  body["messages"] = std::move(messages_);
  auto request = ParseChat(host, body, defaults);
  if (!request.ok()) return InTheirWords(request.status());
  return request;
}

Status ChatBody::Reworded(const Names& names, const Status& status) {
  const std::string& message = status.message();
  const size_t end = message.find('\'', 1);
  if (!message.starts_with('\'') || end == std::string::npos) return status;
  std::string_view name = std::string_view(message).substr(1, end - 1);
  // The longest beginning of the name that has a name of its own: messages[2].content[0] is a part of messages[2].
  for (size_t n = name.size(); n > 0; --n) {
    if (n < name.size() && name[n] != '.' && name[n] != '[') continue;
    const auto it = names.find(name.substr(0, n));
    if (it == names.end()) continue;
    return Status(status.code(), fmt::format("'{}{}{}", it->second, name.substr(n), message.substr(end)));
  }
  return status;
}

Json PicturePart(std::string_view type, std::string_view base64) {
  return {{"type", "image_url"}, {"image_url", {{"url", fmt::format("data:{};base64,{}", type, base64)}}}};
}

}  // namespace weir
