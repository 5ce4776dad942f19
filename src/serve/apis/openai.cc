// weir-plugin: api
// SPDX-License-Identifier: Apache-2.0
// The OpenAI API's chats, completions and embeddings.
#include <fmt/core.h>
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/base64.h"
#include "serve/answer_sender.h"
#include "serve/answer_shape.h"
#include "serve/apis/api.h"
#include "serve/chat_call.h"
#include "serve/embed_job.h"
#include "serve/openai_request.h"
#include "serve/reply.h"
#include "serve/routes/common.h"

namespace weir {
namespace {

void HandleChat(const Call& call, httplib::Response& response) {
  auto json = ParseJsonObject(call.body);
  if (!json.ok()) return SendError(json.status(), response);
  ChatBody body;
  for (auto& [key, value] : json->items()) {
    if (key != "messages") body.Set(key, std::move(value), key);
  }
  const auto messages = json->find("messages");
  const bool listed = messages != json->end() && messages->is_array();
  for (size_t i = 0; listed && i < messages->size(); ++i) {
    body.Add(std::move((*messages)[i]), fmt::format("messages[{}]", i));
  }
  AnswerChat(
      call, std::move(body),
      [&](const CompletionRequest& request) {
        return std::make_unique<AnswerShape>(call.host, AnswerShape::Kind::kChat, request);
      },
      response);
}

void HandleCompletions(const Call& call, httplib::Response& response) {
  const auto body = ParseJsonObject(call.body);
  if (!body.ok()) return SendError(body.status(), response);
  auto request = ParseCompletion(call.host, *body, call.options.answers);
  if (!request.ok()) return SendError(request.status(), response);
  auto shape = std::make_unique<AnswerShape>(call.host, AnswerShape::Kind::kCompletion, *request);
  SendAnswers(call.host, "", *std::move(request), std::move(shape), response);
}

// Floats in base64, least significant byte first, as clients ask for them.
std::string Base64Of(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(bits >> shift & 0xFF);
  }
  return EncodeBase64(bytes);
}

void HandleEmbeddings(const Call& call, httplib::Response& response) {
  const auto body = ParseJsonObject(call.body);
  if (!body.ok()) return SendError(body.status(), response);
  Fields fields(*body);
  fields.Ignore("model");
  fields.Ignore("user");
  const auto given = [&](const char* name) { return !body->value(name, Json()).is_null(); };
  const char* const key = !given("input") && given("content") ? "content" : "input";  // the first is llama-server's
  const Json* const input = fields.Get(key);
  std::string format = "float";
  fields.Get("encoding_format", &format);
  if (format != "float" && format != "base64") fields.Fail("encoding_format", "must be \"float\" or \"base64\"");
  fields.Only("dimensions", call.host.model().model().config().n_embd);
  if (const Status bad = fields.Done(); !bad.ok()) return SendError(bad, response);
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
  // Written directly: as values of JSON they would take several times the bytes.
  std::string text = R"({"object":"list","data":[)";
  int64_t n_tokens = 0;
  for (size_t i = 0; i < embeddings.size(); ++i) {
    const std::string values =
        format == "float" ? TakeValuesText(&embeddings[i]) : JsonText(Base64Of(embeddings[i].values));
    text += fmt::format(R"({}{{"object":"embedding","index":{},"embedding":{}}})", i == 0 ? "" : ",", i, values);
    n_tokens += embeddings[i].n_tokens;
  }
  const Json rest = {{"model", call.host.options().model_name},
                     {"usage", {{"prompt_tokens", n_tokens}, {"total_tokens", n_tokens}}}};
  text += "]," + JsonText(rest).substr(1) + "\n";
  SendJsonText(std::move(text), response);
}

constexpr RouteInfo kRoutes[] = {
    {.method = "POST", .path = "/v1/chat/completions", .handle = HandleChat, .other_path = "/chat/completions"},
    {.method = "POST", .path = "/v1/completions", .handle = HandleCompletions},
    {.method = "POST", .path = "/v1/embeddings", .handle = HandleEmbeddings, .other_path = "/embeddings"},
};

}  // namespace

extern const ApiInfo kOpenai;
const ApiInfo kOpenai = {.name = "OpenAI", .routes = kRoutes};

}  // namespace weir
