// SPDX-License-Identifier: Apache-2.0
// The chat that an adapter makes of another API's request, in the fields of OpenAI's chats: what can be asked of a
// model, and how it is checked, is in one place (serve/openai_request.h). Errors name the client's own fields.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "serve/completion_request.h"
#include "serve/host.h"

namespace weir {

class ChatBody {
 public:
  // Copies a field of the client's request, under our name for it; absent or null: nothing.
  void Take(Fields& fields, const char* theirs, const char* ours);
  // Sets a field that errors call `theirs`.
  void Set(const std::string& ours, Json value, const std::string& theirs);
  // Adds a message, {"role", "content", ...}. `where`: what the client calls it, "messages[2]".
  void Add(Json message, const std::string& where);

  // What the client calls a field of ours, or all our messages.
  void Name(const std::string& ours, const std::string& theirs) { names_[ours] = theirs; }

  // The messages so far.
  const Json& messages() const { return messages_; }
  Json& messages() { return messages_; }
  // What the client calls message i.
  const std::string& where(size_t i) const { return where_[i]; }
  // The other fields.
  const Json& fields() const { return fields_; }

  // The request, with defaults for what it leaves out. Errors of ParseChat(), in the client's words. Moves fields and
  // messages out, which may be large.
  Result<CompletionRequest> Parse(const Host& host, const AnswerDefaults& defaults);
  // The same error with the client's name of the field that its message begins with.
  Status InTheirWords(const Status& status) const { return Reworded(names_, status); }
  // The same for later, when the chat is gone.
  std::function<Status(const Status&)> Words() const {
    return [names = names_](const Status& status) { return Reworded(names, status); };
  }

 private:
  using Names = std::map<std::string, std::string, std::less<>>;  // theirs by ours
  static Status Reworded(const Names& names, const Status& status);

  Json fields_ = Json::object(), messages_ = Json::array();
  std::vector<std::string> where_;
  Names names_;
};

// "data:TYPE;base64,DATA" as a part of a message's content.
Json PicturePart(std::string_view type, std::string_view base64);

}  // namespace weir
