// SPDX-License-Identifier: Apache-2.0
// Any Jinja program is recognised or refused, and any messages are rendered without their text ever landing in a piece
// that parses control tokens.
//
// Input: lines; the first is a template's name or a program, the others are messages by turns.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const auto line = [&] {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view out = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return out;
  };
  const std::string_view first = line();
  auto chat = weir::ChatTemplate::FromName(first, "<s>", "</s>");
  if (!chat.ok()) chat = weir::ChatTemplate::Detect(first, "<s>", "</s>");
  if (!chat.ok()) return 0;
  std::vector<weir::ChatMessage> messages;
  size_t content_bytes = 0;
  if (!rest.empty() && rest[0] == 's') messages.push_back({"system", std::string(line())});
  while (!rest.empty()) messages.push_back({messages.size() % 2 ? "assistant" : "user", std::string(line())});
  for (const weir::ChatMessage& m : messages) content_bytes += m.content.size();
  for (const bool generation : {false, true}) {
    const auto pieces = chat->Render(messages, generation);
    if (!pieces.ok()) continue;
    size_t unparsed_bytes = 0;
    for (const weir::TextPiece& p : *pieces) unparsed_bytes += p.parse_special ? 0 : p.text.size();
    // A program that is run may repeat a content; jinja_fuzz has its checks.
    if (chat->name() != "jinja" && unparsed_bytes > content_bytes + chat->default_system().size()) std::abort();
  }
  weir::ChatRounds rounds(*chat);
  (void)rounds.System(messages.empty() ? std::nullopt : std::optional<std::string>(messages[0].content));
  for (const weir::ChatMessage& m : messages) {
    (void)rounds.User(m.content);
    (void)rounds.EndAnswer(m.content.empty());
  }
  return 0;
}
