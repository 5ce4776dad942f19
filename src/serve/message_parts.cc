// SPDX-License-Identifier: Apache-2.0
#include "serve/message_parts.h"

#include <utility>

namespace weir {

void MessageParts::Add(const std::vector<AnswerPart>& parts) {
  for (const AnswerPart& part : parts) {
    switch (part.kind) {
      case AnswerPart::Kind::kContent:
        content_ += part.text;
        break;
      case AnswerPart::Kind::kReasoning:
        reasoning_ += part.text;
        break;
      case AnswerPart::Kind::kCall:
        calls_.push_back(part);
        arguments_.emplace_back();
        break;
      case AnswerPart::Kind::kArguments:
        if (!arguments_.empty()) arguments_.back() += part.text;
        break;
    }
  }
}

Json MessageParts::Message() {
  Json out = {{"role", "assistant"}, {"content", nullptr}};
  if (!content_.empty() || calls_.empty()) out["content"] = std::move(content_);
  out["refusal"] = nullptr;
  if (!reasoning_.empty()) out["reasoning_content"] = std::move(reasoning_);
  if (calls_.empty()) return out;
  out["tool_calls"] = Json::array();
  for (size_t i = 0; i < calls_.size(); ++i) {
    out["tool_calls"].push_back(
        {{"id", std::move(calls_[i].id)},
         {"type", "function"},
         {"function", {{"name", std::move(calls_[i].text)}, {"arguments", std::move(arguments_[i])}}}});
  }
  return out;
}

std::vector<Json> MessageParts::Deltas(const std::vector<AnswerPart>& parts) {
  std::vector<Json> out;
  for (const AnswerPart& part : parts) {
    switch (part.kind) {
      case AnswerPart::Kind::kContent:
        out.push_back({{"content", part.text}});
        break;
      case AnswerPart::Kind::kReasoning:
        out.push_back({{"reasoning_content", part.text}});
        break;
      case AnswerPart::Kind::kCall:
        out.push_back({{"tool_calls", Json::array({{{"index", n_calls_++},
                                                    {"id", part.id},
                                                    {"type", "function"},
                                                    {"function", {{"name", part.text}, {"arguments", ""}}}}})}});
        break;
      case AnswerPart::Kind::kArguments:
        out.push_back(
            {{"tool_calls", Json::array({{{"index", n_calls_ - 1}, {"function", {{"arguments", part.text}}}}})}});
        break;
    }
  }
  return out;
}

}  // namespace weir
