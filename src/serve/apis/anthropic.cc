// weir-plugin: api
// SPDX-License-Identifier: Apache-2.0
// Anthropic's Messages API.
//
// Shapes: docs.anthropic.com/en/api/messages and .../messages-streaming. What steers Anthropic's own service
// (`cache_control`, `metadata`, `service_tier`, `context_management`) is taken and changes nothing.
#include <fmt/core.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "serve/answer_tally.h"
#include "serve/apis/api.h"
#include "serve/chat_call.h"
#include "serve/reply.h"
#include "serve/reply_blocks.h"

namespace weir {
namespace {

Json ErrorBody(const ApiError& error) {
  const char* type = error.http == 401   ? "authentication_error"
                     : error.http == 403 ? "permission_error"
                     : error.http == 404 ? "not_found_error"
                     : error.http == 413 ? "request_too_large"
                     : error.http == 429 ? "rate_limit_error"
                     : error.http == 503 ? "overloaded_error"
                     : error.http >= 500 ? "api_error"
                                         : "invalid_request_error";
  return {{"type", "error"}, {"error", {{"type", type}, {"message", error.message}}}};
}

// ---- Answers.

class MessageShape : public ReplyShape {
 public:
  // `stop`: the request's only stop sequence; empty: none, or several.
  MessageShape(const Host& host, std::string stop)
      : model_(host.options().model_name), id_(NewReplyId("msg_")), stop_(std::move(stop)) {}

  void Add(size_t index, const AnswerEvent& event) override {
    (void)blocks_.Add(event);
    if (event.last) Count(index, event);
  }
  Json Whole() override {
    Json out = Message();
    for (const ReplyBlocks::Block& block : blocks_.all()) {
      Json one = Begun(block);
      switch (block.kind) {
        case AnswerPart::Kind::kReasoning:
          one["thinking"] = block.text;
          break;
        case AnswerPart::Kind::kCall:
          one["input"] = Json::parse(block.text, nullptr, /*allow_exceptions=*/false);
          if (!one["input"].is_object()) one["input"] = Json::object();
          break;
        default:
          one["text"] = block.text;
      }
      out["content"].push_back(std::move(one));
    }
    out["stop_reason"] = stop_reason_;
    out["stop_sequence"] = StopSequence();
    out["usage"] = Usage(tally_.n_prompt(), tally_.n_cached(), tally_.n_answer());
    out["weir"] = tally_.memory();
    return out;
  }

  std::string Stream(size_t index, const AnswerEvent& event) override {
    std::string out;
    if (!std::exchange(begun_, true)) {
      Json message = Message();
      message["usage"] = Usage(event.n_prompt, event.n_cached, 0);
      out += Event({{"type", "message_start"}, {"message", std::move(message)}});
    }
    for (const ReplyBlocks::Step& step : blocks_.Add(event)) {
      const ReplyBlocks::Block& block = blocks_.all()[step.block];
      switch (step.what) {
        case ReplyBlocks::Step::What::kBegin:
          out += Event({{"type", "content_block_start"}, {"index", step.block}, {"content_block", Begun(block)}});
          break;
        case ReplyBlocks::Step::What::kMore:
          out += Event({{"type", "content_block_delta"}, {"index", step.block}, {"delta", Delta(block, step.text)}});
          break;
        case ReplyBlocks::Step::What::kEnd:
          out += Event({{"type", "content_block_stop"}, {"index", step.block}});
      }
    }
    if (!event.last) return out;
    Count(index, event);
    out += Event({{"type", "message_delta"},
                  {"delta", {{"stop_reason", stop_reason_}, {"stop_sequence", StopSequence()}}},
                  {"usage", Usage(tally_.n_prompt(), tally_.n_cached(), tally_.n_answer())},
                  {"weir", tally_.memory()}});
    return out + Event({{"type", "message_stop"}});
  }
  std::string Failed(const ApiError& error) override { return Event(ErrorBody(error)); }

 private:
  static std::string Event(const Json& data) { return EventText(data, data["type"].get<std::string>()); }
  void Count(size_t index, const AnswerEvent& event) {
    tally_.Count(index, event.summary);
    stop_reason_ = !event.summary.ended      ? "max_tokens"
                   : blocks_.n_calls() > 0   ? "tool_use"
                   : event.summary.stop_text ? "stop_sequence"
                                             : "end_turn";
  }
  Json StopSequence() const {
    return std::string_view(stop_reason_) == "stop_sequence" && !stop_.empty() ? Json(stop_) : Json();
  }
  Json Message() const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", model_},
            {"content", Json::array()},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr}};
  }
  // Anthropic counts apart what was not read again.
  static Json Usage(int64_t n_prompt, int64_t n_cached, int64_t n_answer) {
    return {{"input_tokens", n_prompt - n_cached},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", n_cached},
            {"output_tokens", n_answer}};
  }
  static Json Begun(const ReplyBlocks::Block& block) {
    switch (block.kind) {
      case AnswerPart::Kind::kReasoning:
        return {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
      case AnswerPart::Kind::kCall:
        return {{"type", "tool_use"}, {"id", block.id}, {"name", block.name}, {"input", Json::object()}};
      default:
        return {{"type", "text"}, {"text", ""}};
    }
  }
  static Json Delta(const ReplyBlocks::Block& block, const std::string& text) {
    switch (block.kind) {
      case AnswerPart::Kind::kReasoning:
        return {{"type", "thinking_delta"}, {"thinking", text}};
      case AnswerPart::Kind::kCall:
        return {{"type", "input_json_delta"}, {"partial_json", text}};
      default:
        return {{"type", "text_delta"}, {"text", text}};
    }
  }

  const std::string model_, id_, stop_;
  ReplyBlocks blocks_;
  AnswerTally tally_;
  const char* stop_reason_ = "end_turn";
  bool begun_ = false;
};

// ---- Requests.

// The text of a string or of a list of texts.
Status TextOf(const Json& json, const std::string& where, std::string* out) {
  if (json.is_string()) {
    *out = json.get<std::string>();
    return Status();
  }
  if (!json.is_array()) return InvalidArgument("'{}' must be a string or a list of texts", where);
  for (size_t i = 0; i < json.size(); ++i) {
    Fields block(json[i], fmt::format("{}[{}].", where, i));
    std::string type, text;
    block.Get("type", &type);
    if (type != "text") block.Fail("type", "must be \"text\"");
    block.Get("text", &text);
    block.Ignore("cache_control");
    block.Ignore("citations");
    WEIR_RETURN_IF_ERROR(block.Done());
    *out += text;
  }
  return Status();
}

Status TakePicture(Fields& block, const std::string& where, Json* parts) {
  const Json* const json = block.Get("source");
  block.Ignore("cache_control");
  if (json == nullptr) block.Fail("source", "is missing");
  WEIR_RETURN_IF_ERROR(block.Done());
  Fields source(*json, where + "source.");
  std::string type, media_type, data;
  source.Get("type", &type);
  source.Get("media_type", &media_type);
  source.Get("data", &data);
  source.Ignore("url");
  if (type != "base64") source.Fail("type", "must be \"base64\": this server fetches nothing");
  WEIR_RETURN_IF_ERROR(source.Done());
  parts->push_back(PicturePart(media_type, data));
  return Status();
}

// A result may have pictures, which the message after it shows: templates take them from users only.
Status TakeResult(Fields& block, const std::string& where, Json* results, Json* parts) {
  std::string id, text;
  bool is_error = false;
  block.Get("tool_use_id", &id);
  block.Get("is_error", &is_error);
  block.Ignore("cache_control");
  const Json* const content = block.Get("content");
  WEIR_RETURN_IF_ERROR(block.Done());
  if (content != nullptr && content->is_array()) {
    for (size_t i = 0; i < content->size(); ++i) {
      const std::string at = fmt::format("{}content[{}].", where, i);
      Fields part((*content)[i], at);
      std::string type, words;
      part.Get("type", &type);
      if (type == "image") {
        WEIR_RETURN_IF_ERROR(TakePicture(part, at, parts));
        continue;
      }
      if (type != "text") part.Fail("type", "must be \"text\" or \"image\"");
      part.Get("text", &words);
      part.Ignore("cache_control");
      part.Ignore("citations");
      WEIR_RETURN_IF_ERROR(part.Done());
      text += words;
    }
  } else if (content != nullptr) {
    WEIR_RETURN_IF_ERROR(TextOf(*content, where + "content", &text));
  }
  results->push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", (is_error ? "Error: " : "") + text}});
  return Status();
}

struct Taken {
  Json parts = Json::array(), calls = Json::array(), results = Json::array();
  std::string thoughts;
};

Status TakeBlock(const Json& json, const std::string& where, const std::string& role, Taken* out) {
  Fields block(json, where);
  std::string type, text;
  block.Get("type", &type);
  if (type == "text") {
    block.Get("text", &text);
    block.Ignore("cache_control");
    block.Ignore("citations");
    out->parts.push_back({{"type", "text"}, {"text", text}});
  } else if (type == "image" && role == "user") {
    return TakePicture(block, where, &out->parts);
  } else if (type == "tool_result" && role == "user") {
    return TakeResult(block, where, &out->results, &out->parts);
  } else if (type == "tool_use" && role == "assistant") {
    std::string id, name;
    block.Get("id", &id);
    block.Get("name", &name);
    block.Ignore("cache_control");
    block.Ignore("caller");
    const Json* const input = block.Get("input");
    if (input != nullptr && !input->is_object()) block.Fail("input", "must be an object");
    out->calls.push_back({{"id", id},
                          {"type", "function"},
                          {"function", {{"name", name}, {"arguments", input == nullptr ? "{}" : JsonText(*input)}}}});
  } else if (type == "thinking" && role == "assistant") {
    block.Get("thinking", &text);
    block.Ignore("signature");
    out->thoughts += text;
  } else if (type == "redacted_thinking" && role == "assistant") {
    block.Ignore("data");
  } else {
    block.Fail("type", role == "user" ? "must be \"text\", \"image\" or \"tool_result\""
                                      : "must be \"text\", \"thinking\" or \"tool_use\"");
  }
  return block.Done();
}

// A list of texts alone is one text.
Json Joined(Json parts) {
  std::string text;
  for (const Json& part : parts) {
    if (part["type"] != "text") return parts;
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

Status TakeMessage(const Host& host, const Json& json, const std::string& where, ChatBody* body) {
  Fields message(json, where + ".");
  std::string role;
  message.Get("role", &role);
  const Json* const content = message.Get("content");
  if (role != "user" && role != "assistant") message.Fail("role", "must be user or assistant");
  WEIR_RETURN_IF_ERROR(message.Done());
  if (content == nullptr || (!content->is_string() && !content->is_array())) {
    return InvalidArgument("'{}.content' must be a string or a list of blocks", where);
  }
  if (content->is_string()) {
    body->Add({{"role", role}, {"content", *content}}, where);
    return Status();
  }
  Taken taken;
  for (size_t i = 0; i < content->size(); ++i) {
    WEIR_RETURN_IF_ERROR(TakeBlock((*content)[i], fmt::format("{}.content[{}].", where, i), role, &taken));
  }
  for (Json& result : taken.results) body->Add(std::move(result), where);
  if (!taken.results.empty() && taken.parts.empty()) return Status();
  Json out = {{"role", role}, {"content", Joined(std::move(taken.parts))}};
  // Only a template that is run can show thoughts; Anthropic's own models do not see earlier ones either.
  if (!taken.thoughts.empty() && host.chat() != nullptr && host.chat()->has_program()) {
    out["reasoning_content"] = taken.thoughts;
  }
  if (!taken.calls.empty()) out["tool_calls"] = std::move(taken.calls);
  body->Add(std::move(out), where);
  return Status();
}

void TakeTools(Fields& fields, ChatBody* body) {
  const Json* const tools = fields.Get("tools");
  if (tools != nullptr && !tools->is_array()) {
    fields.Fail("tools", "must be a list");
  } else if (tools != nullptr && !tools->empty()) {
    Json list = Json::array();
    for (const Json& tool : *tools) {
      const Json type = tool.is_object() ? tool.value("type", Json("custom")) : Json();
      if (type != "custom") {
        fields.Fail("tools",
                    "must be a list of tools of the client's own: {\"name\", \"description\", \"input_schema\"}");
        break;
      }
      Json function = {{"name", tool.value("name", Json())}};
      if (tool.contains("description")) function["description"] = tool["description"];
      function["parameters"] = tool.value("input_schema", Json{{"type", "object"}});
      if (tool.contains("strict")) function["strict"] = tool["strict"];
      list.push_back({{"type", "function"}, {"function", std::move(function)}});
    }
    body->Set("tools", std::move(list), "tools");
  }
  const Json* const given = fields.Get("tool_choice");
  if (given == nullptr) return;
  Fields choice(*given, "tool_choice.");
  std::string type, name;
  bool one = false;
  choice.Get("type", &type);
  choice.Get("name", &name);
  choice.Get("disable_parallel_tool_use", &one);
  if (type == "tool") {
    body->Set("tool_choice", {{"type", "function"}, {"function", {{"name", name}}}}, "tool_choice");
  } else if (type == "auto" || type == "any" || type == "none") {
    body->Set("tool_choice", type == "any" ? "required" : type, "tool_choice");
  } else {
    choice.Fail("type", "must be \"auto\", \"any\", \"tool\" or \"none\"");
  }
  if (one) body->Set("parallel_tool_calls", false, "tool_choice.disable_parallel_tool_use");
  if (const Status bad = choice.Done(); !bad.ok()) fields.Take(bad);
}

void TakeThinking(const Host& host, Fields& fields, ChatBody* body) {
  const Json* const given = fields.Get("thinking");
  if (given == nullptr) return;
  Fields thinking(*given, "thinking.");
  std::string type;
  thinking.Get("type", &type);
  thinking.Ignore("budget_tokens");
  thinking.Ignore("display");
  if (type != "enabled" && type != "disabled" && type != "adaptive") {
    thinking.Fail("type", "must be \"enabled\", \"adaptive\" or \"disabled\"");
  }
  if (const Status bad = thinking.Done(); !bad.ok()) return fields.Take(bad);
  const bool reads = host.chat() != nullptr && host.chat()->Reads("enable_thinking");
  if (type != "adaptive" && (reads || type == "enabled")) {
    body->Set("chat_template_kwargs", {{"enable_thinking", type == "enabled"}}, "thinking.type");
  }
}

// Fields of both routes.
Status TakeChat(const Host& host, const Json& json, Fields& fields, ChatBody* body) {
  for (const char* ignored :
       {"model", "metadata", "service_tier", "context_management", "inference_geo", "speed", "cache_control"}) {
    fields.Ignore(ignored);
  }
  TakeTools(fields, body);
  TakeThinking(host, fields, body);
  for (const char* same : {"temperature", "top_k", "top_p", "min_p", "seed", "ignore_eos", "cache_prompt"}) {
    body->Take(fields, same, same);
  }
  body->Take(fields, "stop_sequences", "stop");
  body->Take(fields, "stream", "stream");
  const Json* format = fields.Get("output_format");
  if (const Json* const output = fields.Get("output_config"); output != nullptr) {
    Fields inner(*output, "output_config.");
    if (const Json* const effort = inner.Get("effort"); effort != nullptr) {
      body->Set("reasoning_effort", *effort, "output_config.effort");
    }
    if (const Json* const inner_format = inner.Get("format"); inner_format != nullptr) format = inner_format;
    if (const Status bad = inner.Done(); !bad.ok()) fields.Take(bad);
  }
  if (format != nullptr) {
    if (format->is_object() && format->value("type", Json()) == "json_schema" && format->contains("schema")) {
      body->Set("response_format",
                {{"type", "json_schema"},
                 {"json_schema", {{"name", "answer"}, {"strict", true}, {"schema", (*format)["schema"]}}}},
                "output_format");
    } else {
      fields.Fail("output_format", "must be {\"type\": \"json_schema\", \"schema\": ...}");
    }
  }
  const Json* const system = fields.Get("system");
  const Json* const messages = fields.Get("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    fields.Fail("messages", "must be a list of messages");
  }
  WEIR_RETURN_IF_ERROR(fields.Done());
  if (system != nullptr) {
    std::string text;
    WEIR_RETURN_IF_ERROR(TextOf(*system, "system", &text));
    if (!text.empty()) body->Add({{"role", "system"}, {"content", text}}, "system");
  }
  for (size_t i = 0; i < messages->size(); ++i) {
    WEIR_RETURN_IF_ERROR(TakeMessage(host, (*messages)[i], fmt::format("messages[{}]", i), body));
  }
  return Status();
}

void HandleMessages(const Call& call, httplib::Response& response) {
  const auto json = ParseJsonObject(call.body);
  if (!json.ok()) return SendError(json.status(), response);
  Fields fields(*json);
  ChatBody body;
  if (fields.Get("max_tokens") == nullptr) fields.Fail("max_tokens", "is missing");
  body.Take(fields, "max_tokens", "max_tokens");
  if (const Status bad = TakeChat(call.host, *json, fields, &body); !bad.ok()) return SendError(bad, response);
  const Json stops = body.fields().value("stop", Json());
  const std::string stop = stops.is_array() && stops.size() == 1 && stops[0].is_string() ? stops[0] : Json("");
  AnswerChat(
      call, std::move(body), [&](const CompletionRequest&) { return std::make_unique<MessageShape>(call.host, stop); },
      response);
}

void HandleCount(const Call& call, httplib::Response& response) {
  const auto json = ParseJsonObject(call.body);
  if (!json.ok()) return SendError(json.status(), response);
  Fields fields(*json);
  ChatBody body;
  fields.Ignore("max_tokens");
  if (const Status bad = TakeChat(call.host, *json, fields, &body); !bad.ok()) return SendError(bad, response);
  const auto request = body.Parse(call.host, call.options.answers);
  if (!request.ok()) return SendError(request.status(), response);
  int64_t n = 0;
  for (const PromptPart& part : request->answers[0].prompt) {
    n += part.visual ? call.host.vision()->encoder->n_rows() : std::ssize(part.tokens);
  }
  SendJson({{"input_tokens", n}}, response);
}

constexpr RouteInfo kRoutes[] = {
    {.method = "POST", .path = "/v1/messages", .handle = HandleMessages, .error_body = ErrorBody},
    {.method = "POST", .path = "/v1/messages/count_tokens", .handle = HandleCount, .error_body = ErrorBody},
};

}  // namespace

extern const ApiInfo kAnthropic;
const ApiInfo kAnthropic = {.name = "Anthropic", .routes = kRoutes};

}  // namespace weir
