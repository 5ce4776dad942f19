// SPDX-License-Identifier: Apache-2.0
#include "serve/mcp.h"

#include <fmt/core.h>
#include <algorithm>
#include <chrono>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/answer_job.h"
#include "serve/call_job.h"
#include "serve/new_session.h"
#include "serve/openai_request.h"
#include "serve/session_job.h"
#include "serve/session_json.h"
#include "serve/visual_input.h"

namespace weir {
namespace {

// Newest first.
constexpr std::string_view kProtocols[] = {"2025-06-18", "2025-03-26", "2024-11-05"};
constexpr int kParseError = -32700, kInvalidRequest = -32600, kMethodNotFound = -32601, kInvalidParams = -32602,
              kInternalError = -32603;
constexpr std::chrono::milliseconds kPoll{100};
constexpr size_t kMaxQueryBytes = 1 << 16;  // searched on the engine's thread, as questions are encoded there
constexpr size_t kMaxBatch = 64;            // messages of one list; only the protocol of 2025-03-26 has lists

Json ErrorMessage(const Json& id, int code, const std::string& message) {
  return {{"jsonrpc", "2.0"}, {"id", id}, {"error", {{"code", code}, {"message", message}}}};
}

Json Tool(const char* name, const char* description, Json properties, Json required) {
  properties["session"] = {{"type", "string"},
                           {"description", "The id of a session; left out: the memory of this connection."}};
  return {
      {"name", name},
      {"description", description},
      {"inputSchema", {{"type", "object"}, {"properties", std::move(properties)}, {"required", std::move(required)}}}};
}

Json Text(const char* what) { return {{"type", "string"}, {"description", what}}; }

Json Tools() {
  return Json::array(
      {Tool("append",
            "Appends a text to the memory. It may be of any length; the oldest and least needed is forgotten.",
            {{"text", Text("What to read.")}}, {"text"}),
       Tool("ask", "Asks the memory a question, which becomes a part of it with its answer.",
            {{"question", Text("What to ask.")},
             {"max_tokens", {{"type", "integer"}, {"description", "The longest answer."}}}},
            {"question"}),
       Tool("remember", "Appends a text that is never forgotten. Room for such texts is limited: keep them short.",
            {{"text", Text("What to keep.")}}, {"text"}),
       Tool("recall", "Finds passages of what was read, also of what was forgotten, without an answer.",
            {{"query", Text("What they are about.")}}, {"query"}),
       Tool("watch", "Shows the memory a picture or a frame of a video.",
            {{"image", Text("The picture: data:image/png;base64,...")},
             {"t_ms", {{"type", "integer"}, {"description", "The time of the frame, in milliseconds."}}}},
            {"image"})});
}

// What a tool says: a text, and the same as values.
Json Said(const std::string& text, Json values) {
  return {{"content", Json::array({{{"type", "text"}, {"text", text}}})},
          {"structuredContent", std::move(values)},
          {"isError", false}};
}

Json CountsOf(const std::string& id, const Json& session) {
  return {{"session", id},
          {"seen", session["seen"]},
          {"kept", session["kept"]},
          {"dropped", session["dropped"]},
          {"pinned", session["pinned"]}};
}

std::string CountsText(const Json& counts) {
  return fmt::format("{} tokens read so far, {} held ({} pinned), {} forgotten.", counts["seen"].get<int64_t>(),
                     counts["kept"].get<int64_t>(), counts["pinned"].get<int64_t>(), counts["dropped"].get<int64_t>());
}

// The next event of a job; cancels it when nobody waits any longer.
template <typename Event>
Event Next(Job& job, Channel<Event>& events, const std::function<bool()>& wanted) {
  for (;;) {
    if (auto event = events.Pop(kPoll)) return *std::move(event);
    if (!wanted()) job.Cancel();
  }
}

Result<Json> Read(Host& host, const std::string& id, const std::shared_ptr<AppendJob>& job,
                  const std::function<bool()>& wanted) {
  WEIR_RETURN_IF_ERROR(host.scheduler().Post(job));
  WEIR_ASSIGN_OR_RETURN(const Json session, Next(*job, job->events, wanted));
  Json counts = CountsOf(id, session);
  const std::string text = CountsText(counts);
  return Said(text, std::move(counts));
}

Result<Json> Ask(Host& host, const ServerOptions& options, const std::string& id, const Json& arguments,
                 const std::function<bool()>& wanted) {
  Json body = arguments;
  body.erase("session");
  WEIR_ASSIGN_OR_RETURN(CompletionRequest request, ParseAsk(host, body, options.answers));
  if (request.logprobs) return InvalidArgument("'logprobs' are not told here");
  const auto job = std::make_shared<AnswerJob>(host, id, std::move(request.answers[0]));
  WEIR_RETURN_IF_ERROR(host.scheduler().Post(job));
  std::string answer;
  for (;;) {
    AnswerEvent event = Next(*job, job->events, wanted);
    answer += event.text;
    if (!event.last) continue;
    WEIR_RETURN_IF_ERROR(event.status);
    const AnswerSummary& summary = event.summary;
    Json values = {{"session", id},
                   {"answer", answer},
                   {"ended", summary.ended},
                   {"seen", summary.tokens.seen},
                   {"kept", summary.tokens.kept},
                   {"dropped", summary.tokens.dropped}};
    if (summary.recalled) {
      values["recalled"] = Json::array();
      for (const RecalledPassage& passage : summary.recalled->passages) values["recalled"].push_back(passage.text);
    }
    return Said(answer, std::move(values));
  }
}

// What a question would bring back; nothing of it stays.
Result<Json> Recall(Host& host, const std::string& id, const std::string& query, const std::function<bool()>& wanted) {
  Json passages = Json::array();
  WEIR_RETURN_IF_ERROR(CallWithSession(
      host, id,
      [&](StreamSession& stream) -> Status {
        if (stream.recall == nullptr) {
          return InvalidArgument("this memory keeps nothing of what it forgets; start the server with --recall words");
        }
        if (stream.recall->stream == nullptr) return IoError("{}", stream.recall->Notes());
        Recaller& recaller = stream.recall->stream->recaller();
        WEIR_RETURN_IF_ERROR(recaller.TakeBack(*stream.session));
        const auto brought = recaller.Bring(*stream.session, query, stream.t_ms);
        WEIR_RETURN_IF_ERROR(recaller.TakeBack(*stream.session));
        WEIR_RETURN_IF_ERROR(brought.status());
        for (const RecalledPassage& passage : brought->passages) {
          passages.push_back({{"seq", passage.seq}, {"score", passage.score}, {"text", passage.text}});
        }
        return Status();
      },
      wanted));
  std::string text;
  for (const Json& passage : passages) text += (text.empty() ? "" : "\n\n") + passage["text"].get<std::string>();
  if (text.empty()) text = "Nothing was found that the memory does not hold already.";
  return Said(text, {{"session", id}, {"passages", std::move(passages)}});
}

}  // namespace

Json McpServer::NotAMessage(const Status& why) { return ErrorMessage(nullptr, kParseError, why.message()); }

Status McpServer::NeedSession(const std::function<bool()>& wanted, std::string* id) {
  if (id->empty()) *id = session_;
  if (!id->empty()) {
    return host_.sessions().Has(*id) ? Status() : NotFound("there is no session '{}'", *id);
  }
  Json state;
  const ApiError error = MakeSession(host_, options_, {}, wanted, &state);
  if (error.http != 0) return Status(StatusCode::kOverBudget, error.message);
  *id = session_ = state["id"];
  return Status();
}

// Errors of a tool are its result, so that the model reads them; an unknown tool is the client's.
Result<Json> McpServer::Call(const Json& params, const std::function<bool()>& wanted) {
  Fields fields(params, "params.");
  std::string name;
  fields.Get("name", &name);
  fields.Ignore("_meta");
  const Json* const given = fields.Get("arguments");
  WEIR_RETURN_IF_ERROR(fields.Done());
  const Json none = Json::object();
  const Json& arguments = given == nullptr ? none : *given;
  constexpr std::string_view kNames[] = {"append", "ask", "remember", "recall", "watch"};
  if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames)) {
    return NotFound("there is no tool '{}'", name.substr(0, 64));
  }
  const auto run = [&]() -> Result<Json> {
    if (!arguments.is_object()) return InvalidArgument("'arguments' must be an object");
    Fields values(arguments);
    std::string session, text;
    int64_t t_ms = -1;
    values.Get("session", &session);
    if (name == "ask") {
      for (const auto& item : arguments.items()) values.Ignore(item.key().c_str());  // Ask() reads them
      WEIR_RETURN_IF_ERROR(values.Done());
      WEIR_RETURN_IF_ERROR(NeedSession(wanted, &session));
      return Ask(host_, options_, session, arguments, wanted);
    }
    const char* const key = name == "recall" ? "query" : name == "watch" ? "image" : "text";
    values.Get(key, &text);
    if (text.empty()) values.Fail(key, "must not be empty");
    if (name == "recall" && text.size() > kMaxQueryBytes) {
      values.Fail(key, fmt::format("may have at most {} bytes", kMaxQueryBytes));
    }
    if (name == "watch") {
      values.Get("t_ms", &t_ms, 0, kMaxMoment);
      if (host_.vision() == nullptr) values.Fail("image", "needs a server that runs with --mmproj");
    }
    WEIR_RETURN_IF_ERROR(values.Done());
    VisualInput picture;
    if (name == "watch") {
      picture.where = "image";
      WEIR_ASSIGN_OR_RETURN(std::string bytes, FileBytes(text, "image"));
      picture.files.push_back(std::move(bytes));
    }
    WEIR_RETURN_IF_ERROR(NeedSession(wanted, &session));
    if (name == "recall") return Recall(host_, session, text, wanted);
    if (name == "watch") {
      return Read(host_, session, std::make_shared<AppendJob>(host_, session, std::move(picture), false, t_ms), wanted);
    }
    EncodeOptions options;
    options.add_special = false;
    return Read(host_, session,
                std::make_shared<AppendJob>(host_, session, host_.tokenizer().Encode(text, options),
                                            /*pinned=*/name == "remember"),
                wanted);
  };
  auto result = run();
  if (result.ok()) return result;
  return Json{{"content", Json::array({{{"type", "text"}, {"text", result.status().message()}}})}, {"isError", true}};
}

Result<Json> McpServer::Parse(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos || text[begin] != '[') return ParseJsonObject(text);
  WEIR_RETURN_IF_ERROR(ParseJsonObject("{\"list\":" + text + "}").status());  // its limits hold for lists, too
  Json list = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return InvalidArgument("the body is not valid JSON");
  if (list.size() > kMaxBatch) return InvalidArgument("a list may have at most {} messages", kMaxBatch);
  return list;
}

std::optional<Json> McpServer::Answer(const Json& message, const std::function<bool()>& wanted) {
  if (!message.is_array()) return AnswerOne(message, wanted);
  if (message.empty()) return ErrorMessage(nullptr, kInvalidRequest, "the list of messages is empty");
  Json out = Json::array();
  for (const Json& one : message) {
    if (!one.is_object()) {
      out.push_back(ErrorMessage(nullptr, kInvalidRequest, "not a message of JSON-RPC 2.0"));
    } else if (auto answer = AnswerOne(one, wanted)) {
      out.push_back(*std::move(answer));
    }
  }
  return out.empty() ? std::nullopt : std::optional<Json>(std::move(out));
}

std::optional<Json> McpServer::AnswerOne(const Json& message, const std::function<bool()>& wanted) {
  const Json id = message.value("id", Json());
  const Json method = message.value("method", Json());
  const bool asks = message.contains("id");
  if (message.value("jsonrpc", Json()) != "2.0" || (asks && !id.is_string() && !id.is_number_integer())) {
    return ErrorMessage(nullptr, kInvalidRequest, "not a message of JSON-RPC 2.0");
  }
  if (!method.is_string()) {
    if (asks && (message.contains("result") || message.contains("error"))) return std::nullopt;  // nothing was asked
    return ErrorMessage(id, kInvalidRequest, "'method' is missing");
  }
  if (!asks) return std::nullopt;
  const Json params = message.value("params", Json::object());
  const auto said = [&](Json result) -> Json {
    return {{"jsonrpc", "2.0"}, {"id", id}, {"result", std::move(result)}};
  };
  if (!params.is_object()) return ErrorMessage(id, kInvalidParams, "'params' must be an object");
  if (method == "ping") return said(Json::object());
  if (method == "tools/list") return said({{"tools", Tools()}});
  if (method == "initialize") {
    const Json wish = params.value("protocolVersion", Json());
    const bool known = wish.is_string() && std::find(std::begin(kProtocols), std::end(kProtocols),
                                                     wish.get<std::string>()) != std::end(kProtocols);
    return said(
        {{"protocolVersion", known ? wish : Json(kProtocols[0])},
         {"capabilities", {{"tools", {{"listChanged", false}}}}},
         {"serverInfo", {{"name", "weir"}, {"title", "Weir"}, {"version", WEIR_VERSION}}},
         {"instructions",
          "A memory for more than a context holds: append what you read, ask about it later, remember what must "
          "never be lost, recall the words of what was forgotten."}});
  }
  if (method == "tools/call") {
    const auto result = Call(params, wanted);
    if (result.ok()) return said(*result);
    return ErrorMessage(id, result.status().code() == StatusCode::kInternal ? kInternalError : kInvalidParams,
                        result.status().message());
  }
  return ErrorMessage(id, kMethodNotFound, "there is no method '" + method.get<std::string>().substr(0, 64) + "'");
}

}  // namespace weir
