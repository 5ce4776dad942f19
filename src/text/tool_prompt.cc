// SPDX-License-Identifier: Apache-2.0
#include "text/tool_prompt.h"

#include <algorithm>
#include <utility>

namespace weir {
namespace {

// A call as the dialect "generic" reads it. Clients send arguments as a text.
std::string CallText(const Json& call) {
  const Json none = Json::object();
  const Json& function = call.is_object() && call.contains("function") ? call["function"] : none;
  Json shown = {{"name", function.value("name", Json(""))}, {"arguments", function.value("arguments", none)}};
  if (shown["arguments"].is_string()) {
    auto parsed = ParseJsonObject(shown["arguments"].get_ref<const std::string&>());
    if (parsed.ok()) shown["arguments"] = *std::move(parsed);
  }
  return "<tool_call>\n" + JsonText(shown) + "\n</tool_call>";
}

// The message without its calls, which its content now shows.
void WriteOut(ChatMessage* message) {
  auto more = ParseJsonObject(message->more);
  if (!more.ok() || !more->contains("tool_calls")) return;
  for (const Json& call : (*more)["tool_calls"]) {
    if (!message->content.empty()) message->content += "\n";
    message->content += CallText(call);
  }
  more->erase("tool_calls");
  more->erase("content");
  message->more = more->empty() ? "" : JsonText(*more);
}

}  // namespace

std::string DescribeTools(const Json& tools, bool must, bool one) {
  std::string out = "You can call these tools. Each line is one tool with its JSON schema:\n<tools>\n";
  for (const Json& tool : tools) out += JsonText(tool.contains("function") ? tool["function"] : tool) + "\n";
  out +=
      "</tools>\n\nTo call a tool, write its name and its arguments as one JSON object between these tags, and nothing "
      "after it:\n<tool_call>\n{\"name\": \"NAME\", \"arguments\": {\"KEY\": VALUE}}\n</tool_call>\n";
  if (one) out += "Call one tool at a time. ";
  out += must ? "Answer with a call." : "If no tool helps, answer in plain words.";
  return out;
}

void AddSystemText(const AnswerForm& form, const std::string& text, std::vector<ChatMessage>* messages) {
  const bool has_system = !messages->empty() && messages->front().role == "system";
  if (has_system) {
    std::string& content = messages->front().content;
    content = text + (content.empty() ? "" : "\n\n") + content;
  } else if (form.shows_system()) {
    messages->insert(messages->begin(), ChatMessage{"system", text, {}});
  } else {
    const auto user =
        std::find_if(messages->begin(), messages->end(), [](const ChatMessage& m) { return m.role == "user"; });
    if (user != messages->end()) user->content = text + "\n\n" + user->content;
  }
}

void WriteOutCalls(const AnswerForm& form, std::vector<ChatMessage>* messages) {
  std::vector<ChatMessage> out;
  bool after_result = false;
  for (ChatMessage& message : *messages) {
    if (message.role == "tool" && !form.shows_results()) {
      const std::string text = "<tool_response>\n" + message.content + "\n</tool_response>";
      if (after_result) {
        out.back().content += "\n" + text;
      } else {
        out.push_back({"user", text, {}});
      }
      after_result = true;
      continue;
    }
    after_result = false;
    if (!message.more.empty() && !form.shows_calls()) WriteOut(&message);
    out.push_back(std::move(message));
  }
  *messages = std::move(out);
}

}  // namespace weir
