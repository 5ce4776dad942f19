// SPDX-License-Identifier: Apache-2.0
// What a request says about tools and thoughts, checked: the tools it offers, which of them may be called, and what
// becomes of the model's thoughts. Shapes: platform.openai.com/docs/guides/function-calling; reasoning_format as in
// llama-server.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "io/json.h"
#include "serve/answer_job.h"
#include "serve/host.h"
#include "text/answer_reader.h"
#include "text/forms/form.h"

namespace weir {

struct ToolRequest {
  enum class Choice { kNone, kAuto, kRequired };
  Json tools = Json::array();  // {"type": "function", "function": {...}}; names are unique
  Choice choice = Choice::kAuto;
  // The tools that may be called, and those that are held to the whole of their schemas. By name; empty: all, none.
  std::set<std::string, std::less<>> only, strict;
  bool parallel = true;
  bool thoughts_apart = true;  // reasoning_format
  std::string effort;          // reasoning_effort; empty: the template's own

  // The model may call something.
  bool active() const { return !tools.empty() && choice != Choice::kNone; }
  // The model must call something.
  bool must() const { return active() && choice == Choice::kRequired; }
};

// Reads tools, tool_choice, parallel_tool_calls, reasoning_format and reasoning_effort.
void GetTools(Fields& fields, ToolRequest* out);
// Reads reasoning_format alone.
void GetReasoningFormat(Fields& fields, ToolRequest* out);

// Checks and copies an assistant's calls: 'messages[1].tool_calls[0]...'. The result has the fields that templates
// read; arguments are a JSON object, or the text of one.
Result<Json> CheckedCalls(const Json& calls, const std::string& where);

// Shows the tools to the model: to its template, or as a text in *messages.
void OfferTools(const Host& host, const ToolRequest& request, ChatArguments* arguments,
                std::vector<ChatMessage>* messages);

// How the answer is taken apart. `prompt` ends where the answer begins, or after `begun`, its beginning.
ReadingOptions ReadingOf(const Host& host, const ToolRequest& request, const std::vector<TextPiece>& prompt,
                         std::string begun);

// Holds the answer to the form that the request asks for, `words`, and its calls to the tools' schemas. A call that may
// be made is held as far as its schema can; one that must be made, or of a strict tool, is an error where it cannot.
// REQUIRES: answer->reading is set.
Status HoldAnswer(const Host& host, const ToolRequest& request, const std::optional<FormSpec>& words,
                  AnswerRequest* answer);

}  // namespace weir
