// weir-plugin: api
// SPDX-License-Identifier: Apache-2.0
// OpenAI's Responses and Conversations. What they store is a stream session: a response that is stored, as all are
// unless `store` is false, can be continued with `previous_response_id` for as long as its session lives, and costs
// only its own words then, however long the conversation was.
//
// Shapes: platform.openai.com/docs/api-reference/responses. A session moves on, so only the newest response of a
// conversation can be continued. Sessions that were made for responses take at most half of the memory that is left to
// sessions; the longest unused one ends first.
#include <fmt/core.h>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "serve/answer_sender.h"
#include "serve/answer_tally.h"
#include "serve/apis/api.h"
#include "serve/call_job.h"
#include "serve/chat_call.h"
#include "serve/new_session.h"
#include "serve/reply.h"
#include "serve/reply_blocks.h"
#include "serve/routes/common.h"
#include "serve/session_chat.h"
#include "serve/thread_book.h"

namespace weir {
namespace {

// A session while a request is at work on it. If no response comes of that, a session that was made for it ends, and
// one that read nothing can be continued as before.
class Use {
 public:
  Use(Host& host, std::string session, bool made) : host_(host), session_(std::move(session)), made_(made) {
    n_seen_ = Seen();
  }
  ~Use() {
    if (done_) return;
    if (made_) {
      (void)DeleteSession(host_, session_);
      host_.threads().Forget(session_);
    } else {
      host_.threads().Release(session_, Seen() != n_seen_);
    }
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  // There is a response.
  void Done() { done_ = true; }

 private:
  int64_t Seen() const {
    int64_t n = -1;
    (void)LookAtSession(host_, session_, [&](const StreamSession& stream) { n = stream.session->n_seen(); });
    return n;
  }

  Host& host_;
  const std::string session_;
  const bool made_;
  int64_t n_seen_ = -1;
  bool done_ = false;
};

// What a response repeats of its request, and where it is stored.
struct Asked {
  Json echo = Json::object();
  std::string session;          // empty: it cannot be continued
  bool owns = false;            // the session was made for it, or for the one before it
  bool store = true;            // its words are kept
  Json previous, conversation;  // null: none
  std::unique_ptr<Use> use;     // of a session that is continued by responses alone
};

// ---- Answers.

class ResponseShape : public ReplyShape {
 public:
  ResponseShape(Host& host, Asked asked)
      : host_(host), asked_(std::move(asked)), id_(NewReplyId("resp_")), created_s_(std::time(nullptr)) {}

  void Add(size_t index, const AnswerEvent& event) override {
    (void)blocks_.Add(event);
    if (event.last) Count(index, event);
  }
  Json Whole() override { return Response(); }

  std::string Stream(size_t index, const AnswerEvent& event) override {
    std::string out;
    if (!std::exchange(begun_, true)) {
      out += Event("response.created", {{"response", Response()}});
      out += Event("response.in_progress", {{"response", Response()}});
    }
    for (const ReplyBlocks::Step& step : blocks_.Add(event)) out += EventsOf(step);
    if (!event.last) return out;
    Count(index, event);
    return out + Event(fmt::format("response.{}", status_), {{"response", Response()}});
  }
  std::string Failed(const ApiError& error) override {
    return Event(
        "error",
        {{"code", error.code.empty() ? Json() : Json(error.code)}, {"message", error.message}, {"param", nullptr}});
  }

 private:
  std::string Event(const std::string& type, const Json& data) {
    Json out = {{"type", type}, {"sequence_number", n_events_++}};
    out.update(data);
    return EventText(out, type);
  }

  std::string EventsOf(const ReplyBlocks::Step& step) {
    const ReplyBlocks::Block& block = blocks_.all()[step.block];
    const bool call = block.kind == AnswerPart::Kind::kCall, thought = block.kind == AnswerPart::Kind::kReasoning;
    const char* text_event = thought ? "response.reasoning_text" : "response.output_text";
    Json at = {{"item_id", ItemId(step.block)}, {"output_index", step.block}};
    if (!call) at["content_index"] = 0;
    const auto with = [&](const char* key, Json value) {
      Json out = at;
      out[key] = std::move(value);
      return out;
    };
    std::string out;
    switch (step.what) {
      case ReplyBlocks::Step::What::kBegin:
        out = Event("response.output_item.added",
                    {{"output_index", step.block}, {"item", Item(step.block, "in_progress")}});
        if (!call) out += Event("response.content_part.added", with("part", Part(block, "")));
        return out;
      case ReplyBlocks::Step::What::kMore: {
        if (call) return Event("response.function_call_arguments.delta", with("delta", step.text));
        Json more = with("delta", step.text);
        if (!thought) more["logprobs"] = Json::array();
        return Event(fmt::format("{}.delta", text_event), more);
      }
      case ReplyBlocks::Step::What::kEnd:
        break;
    }
    if (call) {
      Json done = with("arguments", block.text);
      done["name"] = block.name;
      out = Event("response.function_call_arguments.done", done);
    } else {
      Json done = with("text", block.text);
      if (!thought) done["logprobs"] = Json::array();
      out = Event(fmt::format("{}.done", text_event), done);
      out += Event("response.content_part.done", with("part", Part(block, block.text)));
    }
    return out +
           Event("response.output_item.done", {{"output_index", step.block}, {"item", Item(step.block, "completed")}});
  }

  static Json Part(const ReplyBlocks::Block& block, const std::string& text) {
    if (block.kind == AnswerPart::Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", text}};
    return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
  }

  std::string ItemId(size_t i) const {
    const char* prefix = blocks_.all()[i].kind == AnswerPart::Kind::kCall        ? "fc"
                         : blocks_.all()[i].kind == AnswerPart::Kind::kReasoning ? "rs"
                                                                                 : "msg";
    return fmt::format("{}_{}_{}", prefix, id_.substr(5), i);
  }

  // A block as an item of the output: as it begins (in_progress), or whole.
  Json Item(size_t i, const std::string& status) const {
    const ReplyBlocks::Block& block = blocks_.all()[i];
    const bool whole = status != "in_progress";
    Json out = {{"id", ItemId(i)}};
    if (block.kind == AnswerPart::Kind::kCall) {
      out.update({{"type", "function_call"},
                  {"status", status},
                  {"call_id", block.id},
                  {"name", block.name},
                  {"arguments", whole ? block.text : ""}});
      return out;
    }
    Json content = Json::array();
    if (whole) content.push_back(Part(block, block.text));
    if (block.kind == AnswerPart::Kind::kReasoning) {
      out.update({{"type", "reasoning"}, {"summary", Json::array()}, {"content", std::move(content)}});
    } else {
      out.update({{"type", "message"}, {"status", status}, {"role", "assistant"}, {"content", std::move(content)}});
    }
    return out;
  }

  void Count(size_t index, const AnswerEvent& event) {
    tally_.Count(index, event.summary);
    status_ = event.summary.ended ? "completed" : "incomplete";
    if (asked_.session.empty() || !event.status.ok()) return;
    if (asked_.use) asked_.use->Done();
    const std::string body = asked_.store ? JsonText(Response()) : "";
    const auto orphans = host_.threads().Put({id_, asked_.session, body, asked_.owns});
    for (const std::string& session : orphans) (void)DeleteSession(host_, session);
  }

  // As it is now.
  Json Response() const {
    Json out = {{"id", id_},
                {"object", "response"},
                {"created_at", created_s_},
                {"status", status_},
                {"error", nullptr},
                {"incomplete_details", nullptr},
                {"model", host_.options().model_name},
                {"output", Json::array()},
                {"previous_response_id", asked_.previous},
                {"conversation", asked_.conversation},
                {"store", !asked_.session.empty() && asked_.store},
                {"background", false},
                {"usage", nullptr}};
    out.update(asked_.echo);
    if (std::string_view(status_) == "in_progress") return out;
    if (std::string_view(status_) == "incomplete") out["incomplete_details"] = {{"reason", "max_output_tokens"}};
    for (size_t i = 0; i < blocks_.all().size(); ++i) out["output"].push_back(Item(i, status_));
    out["usage"] = {{"input_tokens", tally_.n_prompt()},
                    {"input_tokens_details", {{"cached_tokens", tally_.n_cached()}}},
                    {"output_tokens", tally_.n_answer()},
                    {"output_tokens_details", {{"reasoning_tokens", 0}}},
                    {"total_tokens", tally_.n_prompt() + tally_.n_answer()}};
    out["weir"] = tally_.memory();
    if (!asked_.session.empty()) out["weir"]["session"] = asked_.session;
    return out;
  }

  Host& host_;
  const Asked asked_;
  const std::string id_;
  const int64_t created_s_;
  const char* status_ = "in_progress";
  ReplyBlocks blocks_;
  AnswerTally tally_;
  int64_t n_events_ = 0;
  bool begun_ = false;
};

// ---- Requests.

Status TakePart(const Json& json, const std::string& where, Json* parts) {
  Fields part(json, where);
  std::string type, text;
  part.Get("type", &type);
  if (type == "input_text" || type == "output_text" || type == "text") {
    part.Get("text", &text);
    part.Ignore("annotations");
    part.Ignore("logprobs");
    parts->push_back({{"type", "text"}, {"text", text}});
  } else if (type == "refusal") {
    part.Get("refusal", &text);
    parts->push_back({{"type", "text"}, {"text", text}});
  } else if (type == "input_image") {
    part.Get("image_url", &text);
    part.Ignore("detail");
    if (text.empty()) part.Fail("image_url", "is missing: send the picture as data:TYPE;base64,...");
    parts->push_back({{"type", "image_url"}, {"image_url", {{"url", text}}}});
  } else {
    part.Fail("type", "must be \"input_text\", \"input_image\" or \"output_text\"");
  }
  return part.Done();
}

// The content of a message or of a tool's result: a string, or a list of parts of which texts alone are one text.
Status TakeContent(const Json* content, const std::string& where, Json* out) {
  if (content == nullptr || (!content->is_string() && !content->is_array())) {
    return InvalidArgument("'{}' must be a string or a list of parts", where);
  }
  *out = *content;
  if (content->is_string()) return Status();
  Json parts = Json::array();
  std::string text;
  bool texts = true;
  for (size_t i = 0; i < content->size(); ++i) {
    WEIR_RETURN_IF_ERROR(TakePart((*content)[i], fmt::format("{}[{}].", where, i), &parts));
    texts = texts && parts.back()["type"] == "text";
    if (texts) text += parts.back()["text"].get_ref<const std::string&>();
  }
  *out = texts ? Json(text) : std::move(parts);
  return Status();
}

Status TakeItem(const Json& json, const std::string& where, ChatBody* body) {
  Fields item(json, where + ".");
  std::string type = "message", role, id, name, arguments;
  item.Get("type", &type);
  item.Ignore("id");
  item.Ignore("status");
  if (type == "message") {
    item.Get("role", &role);
    const Json* const content = item.Get("content");
    WEIR_RETURN_IF_ERROR(item.Done());
    Json words;
    WEIR_RETURN_IF_ERROR(TakeContent(content, where + ".content", &words));
    body->Add({{"role", role}, {"content", std::move(words)}}, where);
    return Status();
  }
  if (type == "reasoning") return Status();  // earlier thoughts are not shown again
  if (type == "function_call") {
    item.Get("call_id", &id);
    item.Get("name", &name);
    item.Get("arguments", &arguments);
    WEIR_RETURN_IF_ERROR(item.Done());
    Json call = {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
    Json& messages = body->messages();
    // Calls that follow one another, or what was said before them, are one message.
    if (!messages.empty() && messages.back()["role"] == "assistant") {
      messages.back()["tool_calls"].push_back(std::move(call));
    } else {
      body->Add({{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({std::move(call)})}}, where);
    }
    return Status();
  }
  if (type == "function_call_output") {
    item.Get("call_id", &id);
    const Json* const output = item.Get("output");
    WEIR_RETURN_IF_ERROR(item.Done());
    Json words;
    WEIR_RETURN_IF_ERROR(TakeContent(output, where + ".output", &words));
    body->Add({{"role", "tool"}, {"tool_call_id", id}, {"content", std::move(words)}}, where);
    return Status();
  }
  item.Fail("type", "must be \"message\", \"function_call\", \"function_call_output\" or \"reasoning\"");
  return item.Done();
}

void TakeTools(Fields& fields, ChatBody* body, Json* echo) {
  const Json* const tools = fields.Get("tools");
  if (tools != nullptr && !tools->is_array()) {
    fields.Fail("tools", "must be a list");
  } else if (tools != nullptr && !tools->empty()) {
    Json list = Json::array();
    for (const Json& tool : *tools) {
      if (!tool.is_object() || tool.value("type", Json()) != "function") {
        fields.Fail("tools", "must be a list of tools of the type \"function\": this server runs none itself");
        break;
      }
      Json function = tool;
      function.erase("type");
      list.push_back({{"type", "function"}, {"function", std::move(function)}});
    }
    body->Set("tools", std::move(list), "tools");
    (*echo)["tools"] = *tools;
  }
  if (const Json* const choice = fields.Get("tool_choice"); choice != nullptr) {
    (*echo)["tool_choice"] = *choice;
    // Here names are not within objects of their own.
    const auto nested = [](const Json& named) {
      return Json{{"type", "function"}, {"function", {{"name", named.value("name", Json())}}}};
    };
    const Json type = choice->is_object() ? choice->value("type", Json()) : Json();
    Json ours = type == "function" ? nested(*choice) : *choice;
    if (type == "allowed_tools") {
      Json allowed = {{"mode", choice->value("mode", Json("auto"))}, {"tools", Json::array()}};
      const Json named = choice->value("tools", Json());
      for (const Json& tool : named.is_array() ? named : Json::array()) {
        allowed["tools"].push_back(tool.is_object() && tool.value("type", Json()) == "function" ? nested(tool) : tool);
      }
      ours = {{"type", "allowed_tools"}, {"allowed_tools", std::move(allowed)}};
    }
    body->Set("tool_choice", std::move(ours), "tool_choice");
  }
}

void TakeText(Fields& fields, ChatBody* body, Json* echo) {
  const Json* const given = fields.Get("text");
  if (given == nullptr) return;
  Fields text(*given, "text.");
  text.Ignore("verbosity");
  if (const Json* const format = text.Get("format"); format != nullptr) {
    const Json type = format->is_object() ? format->value("type", Json()) : Json();
    if (type == "json_schema") {
      Json schema = *format;
      schema.erase("type");
      body->Set("response_format", {{"type", "json_schema"}, {"json_schema", std::move(schema)}}, "text.format");
    } else if (type == "json_object") {
      body->Set("response_format", {{"type", "json_object"}}, "text.format");
    } else if (type != "text") {
      text.Fail("format", "must be of the type \"text\", \"json_object\" or \"json_schema\"");
    }
    (*echo)["text"] = {{"format", *format}};
  }
  if (const Status bad = text.Done(); !bad.ok()) fields.Take(bad);
}

// The fields beside the conversation, and their echo.
void TakeOptions(Fields& fields, ChatBody* body, Json* echo) {
  *echo = {{"instructions", nullptr},
           {"max_output_tokens", nullptr},
           {"metadata", Json::object()},
           {"parallel_tool_calls", true},
           {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
           {"temperature", nullptr},
           {"text", {{"format", {{"type", "text"}}}}},
           {"tool_choice", "auto"},
           {"tools", Json::array()},
           {"top_p", nullptr},
           {"truncation", "disabled"},
           {"user", nullptr}};
  for (const char* same : {"metadata", "reasoning", "user", "truncation", "instructions", "max_output_tokens",
                           "temperature", "top_p", "parallel_tool_calls"}) {
    if (const Json* const value = fields.Get(same); value != nullptr) (*echo)[same] = *value;
  }
  for (const char* ignored : {"model", "service_tier", "include", "safety_identifier", "prompt_cache_key",
                              "prompt_cache_retention", "stream_options", "max_tool_calls"}) {
    fields.Ignore(ignored);
  }
  fields.Only("background", false);
  fields.Only("top_logprobs", 0);
  if (const Json* const reasoning = fields.Get("reasoning"); reasoning != nullptr) {
    Fields inner(*reasoning, "reasoning.");
    if (const Json* const effort = inner.Get("effort"); effort != nullptr) {
      body->Set("reasoning_effort", *effort, "reasoning.effort");
    }
    for (const char* ignored : {"summary", "generate_summary"}) inner.Ignore(ignored);
    if (const Status bad = inner.Done(); !bad.ok()) fields.Take(bad);
  }
  body->Take(fields, "max_output_tokens", "max_tokens");
  for (const char* same : {"temperature", "top_p", "top_k", "min_p", "seed", "stop", "stream", "ignore_eos",
                           "parallel_tool_calls", "cache_prompt"}) {
    body->Take(fields, same, same);
  }
  TakeTools(fields, body, echo);
  TakeText(fields, body, echo);
}

ApiError NoSuchResponse(const std::string& id) {
  return {404, "not_found",
          "there is no response '" + id + "': it was not stored, was deleted, or its session has ended; " +
              "send the whole conversation"};
}

// A stored response whose session lives. One whose session is not here is not forgotten yet: it may be on its way to or
// from the folder of a hand-over.
std::optional<ThreadBook::Response> FindResponse(Host& host, const std::string& id) {
  auto found = host.threads().Find(id);
  if (found && !host.sessions().Has(found->session)) found.reset();
  return found;
}

// Ends sessions of earlier responses as long as all of them would take more than half of what is left to sessions.
// False: requests are at work on all of them.
bool MakeRoom(Host& host) {
  for (;;) {
    const int64_t each = host.session_bytes(), n = host.threads().NumSessions();
    const int64_t left = host.ledger().budget_bytes() - host.ledger().used_bytes() + n * each;
    if (n == 0 || (n + 1) * each <= left / 2) return true;
    const std::string oldest = host.threads().TakeOldestSession();
    if (oldest.empty()) return false;
    (void)DeleteSession(host, oldest);
  }
}

// Makes a session for the response.
ApiError MakeOwnSession(const Call& call, const ChatBody& body, Asked* asked) {
  if (const Status bad = CheckForSession(call, body); bad.code() == StatusCode::kUnsupported) {
    return {400, "unsupported", "'store' must be false: " + bad.message()};
  } else if (!bad.ok()) {
    return FromStatus(bad);
  }
  if (!MakeRoom(call.host)) {
    return {429, "over_budget", "requests are at work on all sessions that stored responses may have; try again"};
  }
  std::string id;
  if (const ApiError error = SessionFor(call, body, &id); error.http != 0) return error;
  call.host.threads().Begin(id);
  asked->use = std::make_unique<Use>(call.host, id, /*made=*/true);
  asked->session = id;
  asked->owns = true;
  return {0, "", ""};
}

// The session that the request continues or begins; empty: none. `store`: what the request says, if anything.
ApiError FindSession(const Call& call, const ChatBody& body, const std::string& previous,
                     const std::string& conversation, std::optional<bool> store, Asked* asked) {
  Host& host = call.host;
  asked->store = store.value_or(true);
  if (!previous.empty()) {
    const auto found = FindResponse(host, previous);
    if (!found) return NoSuchResponse(previous);
    if (!host.threads().Claim(*found)) {
      return {409, "not_newest",
              "'previous_response_id' is not the newest response of its conversation, and the session has gone on; "
              "continue the newest, or send the whole conversation"};
    }
    asked->use = std::make_unique<Use>(host, found->session, /*made=*/false);
    asked->session = found->session;
    asked->owns = found->owns;
    asked->previous = previous;
    return {0, "", ""};
  }
  if (!conversation.empty()) {
    if (!host.sessions().Has(conversation)) {
      return {404, "not_found", "there is no conversation '" + conversation + "': it was deleted or has ended"};
    }
    asked->session = conversation;
    asked->conversation = {{"id", conversation}};
    return {0, "", ""};
  }
  if (!asked->store) return {0, "", ""};
  const ApiError error = MakeOwnSession(call, body, asked);
  // What nobody asked to be stored is answered without a session if there is no room for one, or it cannot hold it.
  return (error.http == 429 || error.http == 400) && !store ? ApiError{0, "", ""} : error;
}

void HandleCreate(const Call& call, httplib::Response& response) {
  const auto json = ParseJsonObject(call.body);
  if (!json.ok()) return SendError(json.status(), response);
  Fields fields(*json);
  ChatBody body;
  Asked asked;
  TakeOptions(fields, &body, &asked.echo);
  std::string previous, conversation = call.http.get_header_value("x-session-id"), instructions;
  bool store = true;
  fields.Get("previous_response_id", &previous);
  fields.Get("store", &store);
  fields.Get("instructions", &instructions);
  if (const Json* const given = fields.Get("conversation"); given != nullptr) {
    if (given->is_string()) {
      conversation = given->get<std::string>();
    } else {
      Fields inner(*given, "conversation.");
      inner.Get("id", &conversation);
      if (const Status bad = inner.Done(); !bad.ok()) fields.Take(bad);
    }
    if (!previous.empty()) fields.Fail("conversation", "and 'previous_response_id' cannot be given together");
  }
  const Json* const input = fields.Get("input");
  if (input == nullptr || (!input->is_string() && !input->is_array()) || input->empty()) {
    fields.Fail("input", "must be a string or a list of items");
  }
  body.Name("messages", "input");
  Status status = fields.Done();
  if (!instructions.empty()) body.Add({{"role", "system"}, {"content", instructions}}, "instructions");
  if (status.ok() && input->is_string()) body.Add({{"role", "user"}, {"content", *input}}, "input");
  for (size_t i = 0; status.ok() && input->is_array() && i < input->size(); ++i) {
    status = TakeItem((*input)[i], fmt::format("input[{}]", i), &body);
  }
  if (!status.ok()) return SendError(status, response);
  const std::optional<bool> wish = fields.Has("store") ? std::optional(store) : std::nullopt;
  if (const ApiError error = FindSession(call, body, previous, conversation == "new" ? "" : conversation, wish, &asked);
      error.http != 0) {
    return SendError(error, response);
  }
  const std::string session = asked.session;
  const auto shape = [&](const CompletionRequest&) {
    return std::make_unique<ResponseShape>(call.host, std::move(asked));
  };
  if (!session.empty()) {
    return AnswerInSession(call, session, body, shape, response);
  }
  auto request = body.Parse(call.host, call.options.answers);
  if (!request.ok()) return SendError(request.status(), response);
  auto words = shape(*request);
  SendAnswers(call.host, "", *std::move(request), std::move(words), response);
}

void HandleGet(const Call& call, httplib::Response& response) {
  const auto found = FindResponse(call.host, call.arguments[0]);
  if (!found || found->body.empty()) return SendError(NoSuchResponse(call.arguments[0]), response);
  SendJsonText(found->body + "\n", response);
}

void HandleDelete(const Call& call, httplib::Response& response) {
  const std::string& id = call.arguments[0];
  const auto found = FindResponse(call.host, id);
  if (!found) return SendError(NoSuchResponse(id), response);
  const bool newest = call.host.threads().IsNewest(*found);
  (void)call.host.threads().Erase(id);
  if (found->owns && newest) {
    (void)DeleteSession(call.host, found->session);
    call.host.threads().Forget(found->session);
  }
  SendJson({{"id", id}, {"object", "response"}, {"deleted", true}}, response);
}

Json ConversationJson(const std::string& id, int64_t created_s, Json metadata) {
  return {{"id", id}, {"object", "conversation"}, {"created_at", created_s}, {"metadata", std::move(metadata)}};
}

void HandleConversation(const Call& call, httplib::Response& response) {
  const auto json = ParseJsonObject(call.body.empty() ? "{}" : call.body);
  if (!json.ok()) return SendError(json.status(), response);
  Fields fields(*json);
  fields.Only("items", Json::array());
  const Json* const metadata = fields.Get("metadata");
  if (const Status bad = fields.Done(); !bad.ok()) return SendError(bad, response);
  Json state;
  if (const ApiError error = MakeSession(call.host, call.options, {}, ClientWaits, &state); error.http != 0) {
    return SendError(error, response);
  }
  SendJson(ConversationJson(state["id"], state["created"], metadata == nullptr ? Json::object() : *metadata), response);
}

void HandleGetConversation(const Call& call, httplib::Response& response) {
  int64_t created_s = 0;
  const Status found =
      LookAtSession(call.host, call.arguments[0], [&](const StreamSession& stream) { created_s = stream.created_s; });
  if (!found.ok()) return SendError(found, response);
  SendJson(ConversationJson(call.arguments[0], created_s, Json::object()), response);
}

void HandleDeleteConversation(const Call& call, httplib::Response& response) {
  const std::string& id = call.arguments[0];
  if (const Status status = DeleteSession(call.host, id); !status.ok()) return SendError(status, response);
  call.host.threads().Forget(id);
  SendJson({{"id", id}, {"object", "conversation.deleted"}, {"deleted", true}}, response);
}

// ---- Which session a request works on.

std::string SessionOfResponse(const Host& host, const std::string& id) {
  const auto found = host.threads().Find(id);
  return found ? found->session : "";
}
std::string SessionOfStored(const Call& call) { return SessionOfResponse(call.host, call.arguments[0]); }
std::string SessionOfPath(const Call& call) { return call.arguments[0]; }

// Of a new response: the body names it, or the response that it continues.
std::string SessionOfNew(const Call& call) {
  const bool may = call.body.find("\"previous_response_id\"") != std::string::npos ||
                   call.body.find("\"conversation\"") != std::string::npos;
  if (!may) return "";
  const auto json = ParseJsonObject(call.body);
  if (!json.ok()) return "";
  const Json previous = json->value("previous_response_id", Json());
  if (previous.is_string()) return SessionOfResponse(call.host, previous.get<std::string>());
  Json conversation = json->value("conversation", Json());
  if (conversation.is_object()) conversation = Json(conversation.value("id", Json()));
  return conversation.is_string() ? conversation.get<std::string>() : "";
}

constexpr RouteInfo kRoutes[] = {
    {.method = "POST", .path = "/v1/responses", .handle = HandleCreate, .session = SessionOfNew},
    {.method = "GET", .path = "/v1/responses/{id}", .handle = HandleGet, .session = SessionOfStored},
    {.method = "DELETE", .path = "/v1/responses/{id}", .handle = HandleDelete, .session = SessionOfStored},
    {.method = "POST", .path = "/v1/conversations", .handle = HandleConversation},
    {.method = "GET", .path = "/v1/conversations/{id}", .handle = HandleGetConversation, .session = SessionOfPath},
    {.method = "DELETE",
     .path = "/v1/conversations/{id}",
     .handle = HandleDeleteConversation,
     .session = SessionOfPath},
};

}  // namespace

extern const ApiInfo kResponses;
const ApiInfo kResponses = {.name = "OpenAI Responses", .routes = kRoutes};

}  // namespace weir
