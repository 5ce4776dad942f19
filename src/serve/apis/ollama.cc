// weir-plugin: api
// SPDX-License-Identifier: Apache-2.0
// Ollama's API: chats and texts, whole or as lines of JSON, and what its clients ask about the model.
//
// Shapes: docs/api.md of github.com/ollama/ollama. There is one model, whatever name a request has; it is never loaded
// nor unloaded, and its memory is fixed: `keep_alive`, `num_ctx` and the options of Ollama's own runner are taken and
// change nothing.
#include <fmt/core.h>
#include <algorithm>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "serve/answer_sender.h"
#include "serve/answer_tally.h"
#include "serve/apis/api.h"
#include "serve/chat_call.h"
#include "serve/embed_job.h"
#include "serve/openai_request.h"
#include "serve/reply.h"
#include "serve/reply_blocks.h"
#include "serve/routes/common.h"

namespace weir {
namespace {

Json ErrorBody(const ApiError& error) { return {{"error", error.message}}; }

int64_t Nanoseconds(double ms) { return static_cast<int64_t>(ms * 1e6); }

// ---- Answers.

class OllamaShape : public ReplyShape {
 public:
  enum class Kind { kChat, kGenerate };
  OllamaShape(const Host& host, Kind kind) : model_(host.options().model_name), kind_(kind) {}

  void Add(size_t index, const AnswerEvent& event) override {
    (void)blocks_.Add(event);
    if (event.last) Count(index, event);
  }
  Json Whole() override {
    Piece all;
    for (const ReplyBlocks::Block& block : blocks_.all()) all.Add(block, block.text);
    return Last(all);
  }
  std::string Stream(size_t index, const AnswerEvent& event) override {
    std::string out;
    for (const ReplyBlocks::Step& step : blocks_.Add(event)) {
      // A call is told whole.
      const ReplyBlocks::Block& block = blocks_.all()[step.block];
      const bool call = block.kind == AnswerPart::Kind::kCall;
      if (step.what != (call ? ReplyBlocks::Step::What::kEnd : ReplyBlocks::Step::What::kMore)) continue;
      Piece piece;
      piece.Add(block, call ? block.text : step.text);
      out += Line(Some(piece));
    }
    if (!event.last) return out;
    Count(index, event);
    return out + Line(Last({}));
  }
  std::string Failed(const ApiError& error) override { return Line(ErrorBody(error)); }
  // Lines of JSON have no comments: an answer that has not begun is an empty piece of it.
  std::string Waiting(int64_t, int64_t) override { return Line(Some({})); }
  const char* stream_type() const override { return "application/x-ndjson"; }

 private:
  static std::string Line(const Json& json) { return JsonText(json) + "\n"; }
  void Count(size_t index, const AnswerEvent& event) {
    tally_.Count(index, event.summary);
    done_reason_ = event.summary.ended ? "stop" : "length";
  }
  // What one message says.
  struct Piece {
    std::string content, thinking;
    Json calls = Json::array();
    void Add(const ReplyBlocks::Block& block, const std::string& text) {
      if (block.kind == AnswerPart::Kind::kCall) {
        Json arguments = Json::parse(text, nullptr, /*allow_exceptions=*/false);
        if (!arguments.is_object()) arguments = {{"arguments", text}};
        calls.push_back({{"function", {{"name", block.name}, {"arguments", std::move(arguments)}}}});
      } else {
        (block.kind == AnswerPart::Kind::kReasoning ? thinking : content) += text;
      }
    }
  };
  Json Some(const Piece& piece) const {
    Json out = {{"model", model_}, {"created_at", UtcText(std::time(nullptr))}};
    Json message = {{"role", "assistant"}, {"content", piece.content}};
    Json& at = kind_ == Kind::kChat ? message : out;
    if (kind_ == Kind::kGenerate) out["response"] = piece.content;
    if (!piece.thinking.empty()) at["thinking"] = piece.thinking;
    if (!piece.calls.empty()) at["tool_calls"] = piece.calls;
    if (kind_ == Kind::kChat) out["message"] = std::move(message);
    out["done"] = false;
    return out;
  }
  Json Last(const Piece& piece) const {
    Json out = Some(piece);
    out["done"] = true;
    out["done_reason"] = done_reason_;
    out["total_duration"] = Nanoseconds(tally_.prompt_ms() + tally_.answer_ms());
    out["load_duration"] = 0;
    out["prompt_eval_count"] = tally_.n_prompt();
    out["prompt_eval_duration"] = Nanoseconds(tally_.prompt_ms());
    out["eval_count"] = tally_.n_answer();
    out["eval_duration"] = Nanoseconds(tally_.answer_ms());
    out["weir"] = tally_.memory();
    return out;
  }

  const std::string model_;
  const Kind kind_;
  ReplyBlocks blocks_;
  const char* done_reason_ = "stop";
  AnswerTally tally_;
};

// ---- Requests.

// Ollama's options -> the chat's fields.
void TakeOptions(const Json* options, Fields& fields, ChatBody* body) {
  if (options == nullptr) return;
  Fields inner(*options, "options.");
  const auto take = [&](const char* theirs, const char* ours) {
    if (const Json* const value = inner.Get(theirs); value != nullptr) {
      body->Set(ours, *value, std::string("options.") + theirs);
    }
  };
  for (const char* same : {"temperature", "top_k", "top_p", "min_p", "seed", "stop", "repeat_penalty", "repeat_last_n",
                           "presence_penalty", "frequency_penalty", "ignore_eos"}) {
    take(same, same);
  }
  take("num_predict", "max_tokens");
  // -2: as much as the context holds, which here has no end.
  if (body->fields().value("max_tokens", Json()) == -2) body->Set("max_tokens", -1, "options.num_predict");
  inner.Only("mirostat", 0);
  inner.Only("typical_p", 1.0);
  inner.Only("tfs_z", 1.0);
  for (const char* ignored :
       {"num_ctx", "num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread", "numa", "use_mmap", "use_mlock",
        "low_vram", "f16_kv", "vocab_only", "logits_all", "penalize_newline", "mirostat_tau", "mirostat_eta"}) {
    inner.Ignore(ignored);
  }
  if (const Status bad = inner.Done(); !bad.ok()) fields.Take(bad);
}

// Fields of both /api/chat and /api/generate.
void TakeCommon(Fields& fields, ChatBody* body) {
  fields.Ignore("model");
  fields.Ignore("keep_alive");
  bool stream = true;
  fields.Get("stream", &stream);
  body->Set("stream", stream, "stream");
  TakeOptions(fields.Get("options"), fields, body);
  if (const Json* const format = fields.Get("format"); format != nullptr) {
    if (*format == "json") {
      body->Set("response_format", {{"type", "json_object"}}, "format");
    } else if (format->is_object()) {
      body->Set("response_format",
                {{"type", "json_schema"}, {"json_schema", {{"name", "answer"}, {"strict", true}, {"schema", *format}}}},
                "format");
    } else if (*format != "") {
      fields.Fail("format", "must be \"json\" or a JSON schema");
    }
  }
  if (const Json* const think = fields.Get("think"); think != nullptr) {
    if (think->is_boolean()) {
      body->Set("chat_template_kwargs", {{"enable_thinking", *think}}, "think");
    } else if (*think == "low" || *think == "medium" || *think == "high") {
      body->Set("reasoning_effort", *think, "think");
    } else {
      fields.Fail("think", "must be true, false, \"low\", \"medium\" or \"high\"");
    }
  }
}

// The content of a message with its pictures, which Ollama lists beside it.
Json ContentOf(const Json& text, const Json* images, const std::string& where, Fields& fields) {
  if (images == nullptr || (images->is_array() && images->empty())) return text;
  Json pictures = Json::array();
  bool well_formed = images->is_array();
  for (const Json& image : *images) {
    well_formed = well_formed && image.is_string();
    if (well_formed) pictures.push_back(PicturePart("image", image.get_ref<const std::string&>()));
  }
  if (!well_formed) fields.Fail("images", "must be a list of pictures in base64");
  if (!text.is_string()) return pictures;
  // Each "[img]" is the place of the next picture, from the first on; those that are left come before the text.
  constexpr std::string_view kPlace = "[img]";
  std::string_view words = text.get_ref<const std::string&>();
  size_t n_places = 0;
  for (size_t at = 0; (at = words.find(kPlace, at)) != words.npos; at += kPlace.size()) ++n_places;
  const size_t n_placed = std::min(n_places, pictures.size());
  Json parts = Json::array();
  const auto say = [&](std::string_view said) {
    if (!said.empty()) parts.push_back({{"type", "text"}, {"text", said}});
  };
  for (size_t i = n_placed; i < pictures.size(); ++i) parts.push_back(std::move(pictures[i]));
  for (size_t i = 0; i < n_placed; ++i) {
    const size_t at = words.find(kPlace);
    say(words.substr(0, at));
    words.remove_prefix(at + kPlace.size());
    parts.push_back(std::move(pictures[i]));
  }
  say(words);
  return parts;
}

Status TakeMessage(const Json& json, const std::string& where, ChatBody* body) {
  Fields message(json, where + ".");
  Json out = Json::object();
  std::string role, content;
  message.Get("role", &role);
  message.Get("content", &content);
  out["role"] = role;
  out["content"] = ContentOf(content, message.Get("images"), where, message);
  const Json* const calls = message.Get("tool_calls");
  if (calls != nullptr && !calls->is_array()) {
    message.Fail("tool_calls", "must be a list");
  } else if (calls != nullptr && !calls->empty()) {
    Json list = Json::array();
    for (const Json& call : *calls) {
      if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) {
        message.Fail("tool_calls", "must be a list of {\"function\": {\"name\", \"arguments\"}}");
        break;
      }
      Json function = call["function"];
      if (!function.value("arguments", Json()).is_string()) {
        function["arguments"] = JsonText(function.value("arguments", Json::object()));
      }
      function.erase("index");
      list.push_back({{"id", call.value("id", Json(fmt::format("call_{}", list.size())))},
                      {"type", "function"},
                      {"function", std::move(function)}});
    }
    out["tool_calls"] = std::move(list);
  }
  for (const auto& [theirs, ours] :
       {std::pair("tool_name", "name"), std::pair("name", "name"), std::pair("tool_call_id", "tool_call_id"),
        std::pair("thinking", "reasoning_content")}) {
    std::string text;
    message.Get(theirs, &text);
    if (!text.empty()) out[ours] = text;
  }
  WEIR_RETURN_IF_ERROR(message.Done());
  body->Add(std::move(out), where);
  return Status();
}

// A request that says nothing only asks for the model to be in memory, which it is.
void AnswerLoaded(const Call& call, OllamaShape::Kind kind, httplib::Response& response) {
  Json out = {{"model", call.host.options().model_name}, {"created_at", UtcText(std::time(nullptr))}};
  if (kind == OllamaShape::Kind::kChat) {
    out["message"] = {{"role", "assistant"}, {"content", ""}};
  } else {
    out["response"] = "";
  }
  out["done"] = true;
  out["done_reason"] = "load";
  SendJson(out, response);
}

MakeShape ShapeOf(const Host& host, OllamaShape::Kind kind) {
  return [&host, kind](const CompletionRequest&) { return std::make_unique<OllamaShape>(host, kind); };
}

void HandleChat(const Call& call, httplib::Response& response) {
  const auto json = ParseJsonObject(call.body);
  if (!json.ok()) return SendError(json.status(), response);
  Fields fields(*json);
  ChatBody body;
  TakeCommon(fields, &body);
  body.Take(fields, "tools", "tools");
  const Json* const messages = fields.Get("messages");
  if (messages != nullptr && !messages->is_array()) fields.Fail("messages", "must be a list");
  Status status = fields.Done();
  if (status.ok() && (messages == nullptr || messages->empty())) {
    return AnswerLoaded(call, OllamaShape::Kind::kChat, response);
  }
  for (size_t i = 0; status.ok() && i < messages->size(); ++i) {
    status = TakeMessage((*messages)[i], fmt::format("messages[{}]", i), &body);
  }
  if (!status.ok()) return SendError(status, response);
  AnswerChat(call, std::move(body), ShapeOf(call.host, OllamaShape::Kind::kChat), response);
}

// A text: as a chat of one message or, with `raw`, as it is.
void HandleGenerate(const Call& call, httplib::Response& response) {
  const auto json = ParseJsonObject(call.body);
  if (!json.ok()) return SendError(json.status(), response);
  Fields fields(*json);
  ChatBody body;
  TakeCommon(fields, &body);
  bool raw = false;
  std::string prompt, system;
  fields.Get("raw", &raw);
  fields.Get("prompt", &prompt);
  fields.Get("system", &system);
  const Json* const images = fields.Get("images");
  fields.Only("suffix", "");
  fields.Only("template", "");
  fields.Only("context", Json::array());
  const bool plain = raw || call.host.chat() == nullptr;
  if (plain && !system.empty()) fields.Fail("system", "needs a chat template, and 'raw' to be false");
  if (plain && images != nullptr && !images->empty()) {
    fields.Fail("images", "need a chat template, and 'raw' to be false");
  }
  const Json content = ContentOf(prompt, images, "prompt", fields);
  if (const Status bad = fields.Done(); !bad.ok()) return SendError(bad, response);
  if (prompt.empty() && content.is_string()) return AnswerLoaded(call, OllamaShape::Kind::kGenerate, response);
  if (plain) {
    Json text = body.fields();
    text["prompt"] = prompt;
    text["parse_special"] = raw;
    if (!text.contains("max_tokens")) text["max_tokens"] = call.options.answers.max_tokens;
    auto request = ParseCompletion(call.host, text, call.options.answers);
    if (!request.ok()) return SendError(body.InTheirWords(request.status()), response);
    return SendAnswers(call.host, "", *std::move(request),
                       std::make_unique<OllamaShape>(call.host, OllamaShape::Kind::kGenerate), response);
  }
  body.Name("messages", "prompt");
  if (!system.empty()) body.Add({{"role", "system"}, {"content", system}}, "system");
  body.Add({{"role", "user"}, {"content", content}}, "prompt");
  AnswerChat(call, std::move(body), ShapeOf(call.host, OllamaShape::Kind::kGenerate), response);
}

// ---- Embeddings.

void SendEmbeddings(const Call& call, const Json* input, const char* key, bool one, httplib::Response& response) {
  auto texts = EmbeddingInputs(call.host, input, key);
  if (!texts.ok()) return SendError(texts.status(), response);
  const int64_t n_embd = call.host.model().model().config().n_embd;
  if (const Status room = HttpConnection::Current()->Take(EmbeddingBytes(texts->size(), n_embd)); !room.ok()) {
    return SendError(room, response);
  }
  std::vector<Embedding> embeddings;
  if (const ApiError error = Embed(call.host, *std::move(texts), ClientWaits, &embeddings); error.http != 0) {
    return SendError(error, response);
  }
  if (one) return SendJson({{"embedding", embeddings[0].values}}, response);
  // Written directly: as values of JSON they would take several times the bytes.
  std::string text = R"({"embeddings":[)";
  int64_t n_tokens = 0;
  for (Embedding& embedding : embeddings) {
    if (n_tokens > 0) text += ",";
    text += TakeValuesText(&embedding);
    n_tokens += embedding.n_tokens;
  }
  const Json rest = {{"model", call.host.options().model_name},
                     {"total_duration", 0},
                     {"load_duration", 0},
                     {"prompt_eval_count", n_tokens}};
  text += "]," + JsonText(rest).substr(1) + "\n";
  SendJsonText(std::move(text), response);
}

// `key`: the field with the text or texts. /api/embeddings is the older form, for one text.
void HandleEmbed(const Call& call, const char* key, bool one, httplib::Response& response) {
  const auto json = ParseJsonObject(call.body);
  if (!json.ok()) return SendError(json.status(), response);
  Fields fields(*json);
  for (const char* ignored : {"model", "keep_alive", "options", "truncate"}) fields.Ignore(ignored);
  fields.Only("dimensions", call.host.model().model().config().n_embd);
  const Json* const input = fields.Get(key);
  if (one && input != nullptr && !input->is_string()) fields.Fail(key, "must be a string");
  if (const Status bad = fields.Done(); !bad.ok()) return SendError(bad, response);
  SendEmbeddings(call, input, key, one, response);
}

void HandleEmbedTexts(const Call& call, httplib::Response& response) { HandleEmbed(call, "input", false, response); }
void HandleEmbedOne(const Call& call, httplib::Response& response) { HandleEmbed(call, "prompt", true, response); }

// ---- The model.

Json DetailsOf(const Host& host) {
  const ModelConfig& config = host.model().model().config();
  return {{"parent_model", ""},
          {"format", "gguf"},
          {"family", config.architecture},
          {"families", Json::array({config.architecture})},
          {"parameter_size", ""},
          {"quantization_level", ""}};
}

Json EntryOf(const Host& host) {
  const std::string& name = host.options().model_name;
  return {{"name", name},
          {"model", name},
          {"modified_at", UtcText(0)},
          {"size", host.model().ledger().used_bytes()},
          {"digest", host.fingerprint()},
          {"details", DetailsOf(host)}};
}

void HandleTags(const Call& call, httplib::Response& response) {
  SendJson({{"models", Json::array({EntryOf(call.host)})}}, response);
}

void HandlePs(const Call& call, httplib::Response& response) {
  Json model = EntryOf(call.host);
  model["expires_at"] = "2318-01-01T00:00:00Z";  // it stays: Ollama's own word for that
  model["size_vram"] = 0;
  model["context_length"] = call.host.plan().pot_slots;
  SendJson({{"models", Json::array({std::move(model)})}}, response);
}

void HandleShow(const Call& call, httplib::Response& response) {
  const auto json = ParseJsonObject(call.body);
  if (!json.ok()) return SendError(json.status(), response);
  Fields fields(*json);
  std::string name;
  fields.Get("name", &name);
  fields.Get("model", &name);
  fields.Ignore("verbose");
  if (const Status bad = fields.Done(); !bad.ok()) return SendError(bad, response);
  const Host& host = call.host;
  const std::string& ours = host.options().model_name;
  if (name != ours && name != ours + ":latest") {
    return SendError({404, "model_not_found", "model '" + name + "' not found"}, response);
  }
  const ModelConfig& config = host.model().model().config();
  const auto jinja = host.model().file().StringOr("tokenizer.chat_template", "");
  Json capabilities = {"completion", "embedding"};
  if (host.vision() != nullptr) capabilities.push_back("vision");
  if (host.chat() != nullptr && host.chat()->Reads("tools")) capabilities.push_back("tools");
  if (host.chat() != nullptr && host.chat()->Reads("enable_thinking")) capabilities.push_back("thinking");
  SendJson({{"modelfile", ""},
            {"parameters", fmt::format("num_ctx {}", host.plan().pot_slots)},
            {"template", jinja.ok() ? *jinja : ""},
            {"details", DetailsOf(host)},
            {"model_info",
             {{"general.architecture", config.architecture},
              {"general.basename", ours},
              {config.architecture + ".block_count", config.n_layers},
              {config.architecture + ".context_length", config.n_ctx_train},
              {config.architecture + ".embedding_length", config.n_embd}}},
            {"capabilities", std::move(capabilities)},
            {"modified_at", UtcText(0)}},
           response);
}

void HandleVersion(const Call&, httplib::Response& response) { SendJson({{"version", WEIR_VERSION}}, response); }

constexpr RouteInfo kRoutes[] = {
    {.method = "POST", .path = "/api/chat", .handle = HandleChat, .error_body = ErrorBody},
    {.method = "POST", .path = "/api/generate", .handle = HandleGenerate, .error_body = ErrorBody},
    {.method = "POST", .path = "/api/embed", .handle = HandleEmbedTexts, .error_body = ErrorBody},
    {.method = "POST", .path = "/api/embeddings", .handle = HandleEmbedOne, .error_body = ErrorBody},
    {.method = "GET", .path = "/api/tags", .handle = HandleTags, .error_body = ErrorBody},
    {.method = "GET", .path = "/api/ps", .handle = HandlePs, .error_body = ErrorBody},
    {.method = "POST", .path = "/api/show", .handle = HandleShow, .error_body = ErrorBody},
    {.method = "GET", .path = "/api/version", .handle = HandleVersion, .error_body = ErrorBody},
};

}  // namespace

extern const ApiInfo kOllama;
const ApiInfo kOllama = {.name = "Ollama", .routes = kRoutes};

}  // namespace weir
