// SPDX-License-Identifier: Apache-2.0
#include "serve/tool_request.h"

#include <sys/random.h>

#include <fmt/core.h>
#include <algorithm>
#include <set>
#include <utility>

#include "serve/form_store.h"
#include "text/dialects/text_reader.h"
#include "text/held_answer.h"
#include "text/tool_prompt.h"
#include "text/tool_table.h"

namespace weir {
namespace {

constexpr size_t kMaxTools = 1024, kMaxNameBytes = 128, kMaxSchemaBytes = 1 << 16, kMaxToolBytes = 1 << 20;
constexpr size_t kMaxCalls = 256, kMaxCallIdBytes = 128;
constexpr const char* kNameRule = "must be 1 to 128 letters, digits, '_', '-', '.', ':' or '/'";

bool IsName(std::string_view name) { return name.size() <= kMaxNameBytes && IsToolName(name); }

std::string NewId(bool short_id) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  unsigned char bytes[24] = {};
  const size_t n = short_id ? 9 : sizeof(bytes);
  (void)!getrandom(bytes, n, 0);  // up to 256 bytes are never cut short
  std::string out = short_id ? "" : "call_";
  for (size_t i = 0; i < n; ++i) out += kLetters[bytes[i] % kLetters.size()];
  return out;
}

// One of `tools`; returns it in the form that templates read.
Json ReadTool(const Json& tool, const std::string& where, Fields& all, ToolRequest* out) {
  Fields fields(tool, where);
  std::string type, name, description;
  fields.Get("type", &type);
  if (type != "function") fields.Fail("type", "must be \"function\"");
  const Json* const function = fields.Get("function");
  if (function == nullptr) fields.Fail("function", "is missing");
  if (const Status bad = fields.Done(); !bad.ok()) {
    all.Take(bad);
    return nullptr;
  }
  Fields inner(*function, where + "function.");
  bool strict = false;
  inner.Get("name", &name);
  if (!IsName(name)) inner.Fail("name", kNameRule);
  inner.Get("description", &description);
  inner.Get("strict", &strict);
  const Json* const parameters = inner.Get("parameters");
  if (parameters != nullptr && !parameters->is_object()) inner.Fail("parameters", "must be an object");
  Json shown = {{"name", name}};
  if (inner.Has("description")) shown["description"] = description;
  if (parameters != nullptr) {
    if (JsonText(*parameters).size() > kMaxSchemaBytes) {
      inner.Fail("parameters", fmt::format("may have at most {} bytes", kMaxSchemaBytes));
    }
    shown["parameters"] = *parameters;
  } else {  // templates look into it
    shown["parameters"] = {{"type", "object"}, {"properties", Json::object()}};
  }
  if (const Status bad = inner.Done(); !bad.ok()) all.Take(bad);
  if (strict) out->strict.insert(name);
  return {{"type", "function"}, {"function", std::move(shown)}};
}

// The name in {"type": "function", "function": {"name": ...}}; empty: it has none.
std::string NamedFunction(const Json& value) {
  if (!value.is_object() || value.value("type", Json()) != "function") return "";
  const auto function = value.find("function");
  if (function == value.end() || !function->is_object()) return "";
  const Json name = function->value("name", Json());
  return name.is_string() ? name.get<std::string>() : "";
}

// {"type": "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools": [...]}}
void GetAllowed(Fields& fields, const Json& value, ToolRequest* out) {
  const char* wrong = "must have 'allowed_tools' with 'mode', \"auto\" or \"required\", and a list of 'tools'";
  const auto allowed = value.find("allowed_tools");
  if (allowed == value.end() || !allowed->is_object()) return fields.Fail("tool_choice", wrong);
  const Json mode = allowed->value("mode", Json("auto")), tools = allowed->value("tools", Json());
  if ((mode != "auto" && mode != "required") || !tools.is_array() || tools.empty() || tools.size() > kMaxTools) {
    return fields.Fail("tool_choice", wrong);
  }
  if (mode == "required") out->choice = ToolRequest::Choice::kRequired;
  for (const Json& tool : tools) out->only.insert(NamedFunction(tool));
}

void GetChoice(Fields& fields, ToolRequest* out) {
  const Json* const value = fields.Get("tool_choice");
  if (value == nullptr) return;
  if (*value == "none") {
    out->choice = ToolRequest::Choice::kNone;
  } else if (*value == "required") {
    out->choice = ToolRequest::Choice::kRequired;
  } else if (value->is_object() && value->value("type", Json()) == "allowed_tools") {
    GetAllowed(fields, *value, out);
  } else if (value->is_object() && !NamedFunction(*value).empty()) {
    out->choice = ToolRequest::Choice::kRequired;
    out->only = {NamedFunction(*value)};
  } else if (*value != "auto") {
    return fields.Fail("tool_choice",
                       "must be \"none\", \"auto\", \"required\" or {\"type\": \"function\", \"function\": "
                       "{\"name\": ...}}");
  }
  if (out->choice == ToolRequest::Choice::kRequired && out->tools.empty()) {
    return fields.Fail("tool_choice", "needs 'tools'");
  }
  const auto is_offered = [&](const std::string& name) {
    return std::any_of(out->tools.begin(), out->tools.end(),
                       [&](const Json& tool) { return tool["function"]["name"] == name; });
  };
  if (!std::all_of(out->only.begin(), out->only.end(), is_offered)) {
    fields.Fail("tool_choice", "names a tool that 'tools' does not offer");
  }
}

}  // namespace

void GetReasoningFormat(Fields& fields, ToolRequest* out) {
  std::string format = "auto";
  fields.Get("reasoning_format", &format);
  if (format != "auto" && format != "none" && format != "deepseek") {
    fields.Fail("reasoning_format", "must be \"none\", \"deepseek\" or \"auto\"");
  }
  out->thoughts_apart = format != "none";
}

void GetTools(Fields& fields, ToolRequest* out) {
  GetReasoningFormat(fields, out);
  fields.Get("reasoning_effort", &out->effort);
  if (out->effort.size() > 16) fields.Fail("reasoning_effort", "must be a word such as \"low\" or \"high\"");
  fields.Get("parallel_tool_calls", &out->parallel);
  if (const Json* const tools = fields.Get("tools"); tools != nullptr) {
    if (!tools->is_array() || tools->size() > kMaxTools) {
      return fields.Fail("tools", fmt::format("must be a list of at most {} tools", kMaxTools));
    }
    std::set<std::string> names;
    size_t n_bytes = 0;
    for (size_t i = 0; i < tools->size(); ++i) {
      Json tool = ReadTool((*tools)[i], "tools[" + std::to_string(i) + "].", fields, out);
      if (tool.is_null()) return;
      n_bytes += JsonText(tool).size();
      if (!names.insert(tool["function"]["name"].get<std::string>()).second) {
        return fields.Fail("tools", "has two tools of one name");
      }
      out->tools.push_back(std::move(tool));
    }
    if (n_bytes > kMaxToolBytes) fields.Fail("tools", fmt::format("may have at most {} bytes", kMaxToolBytes));
  }
  GetChoice(fields, out);
}

Result<Json> CheckedCalls(const Json& calls, const std::string& where) {
  if (!calls.is_array() || calls.size() > kMaxCalls) {
    return InvalidArgument("'{}tool_calls' must be a list of at most {} calls", where, kMaxCalls);
  }
  Json out = Json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string of_call = fmt::format("{}tool_calls[{}].", where, i);
    Fields fields(calls[i], of_call);
    std::string type = "function", id;
    fields.Get("type", &type);
    if (type != "function") fields.Fail("type", "must be \"function\"");
    fields.Get("id", &id);
    if (id.size() > kMaxCallIdBytes) fields.Fail("id", fmt::format("may have at most {} bytes", kMaxCallIdBytes));
    fields.Ignore("index");  // clients that collect a stream send it back
    const Json* const function = fields.Get("function");
    if (function == nullptr) fields.Fail("function", "is missing");
    WEIR_RETURN_IF_ERROR(fields.Done());
    Fields inner(*function, of_call + "function.");
    std::string name;
    inner.Get("name", &name);
    if (!IsName(name)) inner.Fail("name", kNameRule);
    const Json* const arguments = inner.Get("arguments");
    if (arguments != nullptr && !arguments->is_string() && !arguments->is_object()) {
      inner.Fail("arguments", "must be a JSON object as text");
    }
    WEIR_RETURN_IF_ERROR(inner.Done());
    Json call = {{"type", "function"}};
    if (!id.empty()) call["id"] = id;
    call["function"] = {{"name", name}, {"arguments", arguments == nullptr ? Json::object() : *arguments}};
    out.push_back(std::move(call));
  }
  return out;
}

void OfferTools(const Host& host, const ToolRequest& request, ChatArguments* arguments,
                std::vector<ChatMessage>* messages) {
  const ChatTemplate& chat = *host.chat();
  if (!request.effort.empty() && chat.Reads("reasoning_effort")) {
    Json named = Json::object();
    if (!arguments->named.empty()) {
      if (auto given = ParseJsonObject(arguments->named); given.ok()) named = *std::move(given);
    }
    if (!named.contains("reasoning_effort")) named["reasoning_effort"] = request.effort;
    arguments->named = JsonText(named);
  }
  if (request.active()) {
    if (host.answer_form().shows_tools()) {
      arguments->tools = JsonText(request.tools);
    } else {
      AddSystemText(host.answer_form(), DescribeTools(request.tools, request.must(), !request.parallel), messages);
    }
  }
  WriteOutCalls(host.answer_form(), messages);
}

ReadingOptions ReadingOf(const Host& host, const ToolRequest& request, const std::vector<TextPiece>& prompt,
                         std::string begun) {
  ReadingOptions out;
  if (request.active()) out.tools = std::make_shared<const ToolTable>(request.tools);
  out.parallel = request.parallel;
  out.thoughts_apart = request.thoughts_apart;
  out.in_thoughts = host.answer_form().OpensThoughts(prompt);
  out.begun = std::move(begun);
  const bool short_ids = host.answer_form().dialect().short_ids;
  out.new_id = [short_ids] { return NewId(short_ids); };
  return out;
}

Status HoldAnswer(const Host& host, const ToolRequest& request, const std::optional<FormSpec>& words,
                  AnswerRequest* answer) {
  if (!request.active() && !words) return Status();
  ReadingOptions& reading = *answer->reading;
  HeldAnswer held;
  if (request.active()) held.tools = request.tools;
  held.must = request.must();
  held.only = request.only;
  held.strict = request.strict;
  held.parallel = request.parallel;
  held.words = words;
  held.in_thoughts = reading.in_thoughts;
  held.may_think = request.active() || request.thoughts_apart;
  held.begun = request.active() && !reading.begun.empty();
  auto form = host.forms().Get(held, host.answer_form());
  const bool asked = words || held.must || !request.strict.empty();
  if (form.ok() && held.begun) {
    const Status fits = FormState(*form).AcceptText(reading.begun);
    if (!fits.ok()) form = InvalidArgument("no call can follow what the last message begins the answer with");
  }
  if (!form.ok()) {
    if (!asked) return Status();
    const char* const what =
        words && !request.active() ? "the answer's form" : "'tools' cannot be held to their schemas";
    return Status(form.status().code(), fmt::format("{}: {}", what, form.status().message()));
  }
  answer->form = *std::move(form);
  reading.held = request.active();
  if (held.begun) answer->form_begun = reading.begun;
  return Status();
}

}  // namespace weir
