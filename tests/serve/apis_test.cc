// SPDX-License-Identifier: Apache-2.0
// The other APIs of the real server, over HTTP: what their clients send and read, and what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "base/base64.h"
#include "cli/edited_model.h"
#include "cli/process.h"
#include "serve/openai_client.h"

namespace weir::testing {
namespace {

const std::string kChat = "/v1/chat/completions", kResponses = "/v1/responses", kMessages = "/v1/messages";

class ApisTest : public OpenAiTest {
 protected:
  static std::string Ask(const std::string& path, const Json& body) {
    const HttpAnswer answer = server_->Post(path, body);
    EXPECT_EQ(answer.status, 200) << path << ": " << answer.body;
    return answer.body;
  }
};

// The same prompt, in each API's own fields.
Json Options() { return {{"num_predict", 12}, {"temperature", 0}, {"ignore_eos", true}}; }
Json OllamaChat(const Json& more = Json::object()) {
  Json body = {{"model", "any"}, {"messages", kHello}, {"stream", false}, {"options", Options()}};
  body.update(more);
  return body;
}
Json Message(const Json& more = Json::object()) {
  Json body = {{"model", "any"}, {"messages", kHello}, {"max_tokens", 12}, {"temperature", 0}, {"ignore_eos", true}};
  body.update(more);
  return body;
}
Json Response(const Json& more = Json::object()) {
  Json body = {{"model", "any"},   {"input", kHello},    {"max_output_tokens", 12},
               {"temperature", 0}, {"ignore_eos", true}, {"store", false}};
  body.update(more);
  return body;
}

std::vector<Json> Lines(const std::string& body) {
  std::vector<Json> out;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find('\n', at);
    out.push_back(Json::parse(body.substr(at, end - at), nullptr, false));
    at = end == std::string::npos ? body.size() : end + 1;
  }
  return out;
}

// The data of a stream of named events, and that each is named after its type.
std::vector<Json> NamedEvents(const std::string& body) {
  std::vector<Json> out;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos) break;
    const std::string event = body.substr(at, end - at);
    at = end + 2;
    if (event.rfind(':', 0) == 0) continue;
    const size_t data = event.find("\ndata: ");
    EXPECT_EQ(event.rfind("event: ", 0), 0u) << event;
    if (data == std::string::npos) continue;
    out.push_back(Json::parse(event.substr(data + 7), nullptr, false));
    EXPECT_EQ(out.back()["type"], event.substr(7, data - 7));
  }
  return out;
}

TEST_F(ApisTest, TheSamePromptHasTheSameAnswerInEveryApi) {
  const std::string want = TextOf(server_->Post(kChat, Chat()));
  ASSERT_FALSE(want.empty());
  const Json prompt = {{"prompt", kHello[0]["content"]}, {"options", Options()}};
  Json whole = prompt;
  whole["stream"] = false;
  EXPECT_EQ(Json::parse(Ask("/api/chat", OllamaChat()))["message"]["content"], want);
  EXPECT_EQ(Json::parse(Ask("/api/generate", whole))["response"], want);
  EXPECT_EQ(Json::parse(Ask(kMessages, Message()))["content"][0]["text"], want);
  EXPECT_EQ(Json::parse(Ask(kResponses, Response()))["output"][0]["content"][0]["text"], want);
  EXPECT_EQ(
      Json::parse(Ask(kResponses, Response({{"input", kHello[0]["content"]}})))["output"][0]["content"][0]["text"],
      want);
  // As streams.
  std::string said;
  for (const Json& line : Lines(Ask("/api/chat", OllamaChat({{"stream", true}})))) {
    said += line["message"]["content"].get<std::string>();
  }
  EXPECT_EQ(said, want);
  said.clear();
  for (const Json& line : Lines(Ask("/api/generate", prompt))) said += line["response"].get<std::string>();
  EXPECT_EQ(said, want);
  said.clear();
  for (const Json& event : NamedEvents(Ask(kMessages, Message({{"stream", true}})))) {
    if (event["type"] == "content_block_delta") said += event["delta"]["text"].get<std::string>();
  }
  EXPECT_EQ(said, want);
  said.clear();
  for (const Json& event : NamedEvents(Ask(kResponses, Response({{"stream", true}})))) {
    if (event["type"] == "response.output_text.delta") said += event["delta"].get<std::string>();
  }
  EXPECT_EQ(said, want);
  // In a session of its own, too: it reads the same words.
  const HttpAnswer session = server_->PostWith(kChat, Chat(), {{"x-session-id", "new"}});
  EXPECT_EQ(TextOf(session), want);
  EXPECT_EQ(server_->Delete("/v1/sessions/" + session.session_id).status, 200);
}

TEST_F(ApisTest, Ollama) {
  const Json chat = Json::parse(Ask("/api/chat", OllamaChat()));
  EXPECT_EQ(chat["done"], true);
  EXPECT_EQ(chat["done_reason"], "length");
  EXPECT_EQ(chat["eval_count"], 12);
  EXPECT_GT(chat["prompt_eval_count"].get<int>(), 0);
  EXPECT_GT(chat["weir"]["seen"].get<int>(), 0);
  EXPECT_EQ(chat["message"]["role"], "assistant");
  const HttpAnswer stream = server_->Post("/api/chat", OllamaChat({{"stream", true}}));
  EXPECT_EQ(stream.content_type, "application/x-ndjson");
  const std::vector<Json> lines = Lines(stream.body);
  ASSERT_GT(lines.size(), 3u);
  EXPECT_EQ(lines[0]["done"], false);
  EXPECT_EQ(lines.back()["done"], true);
  EXPECT_EQ(lines.back()["eval_count"], 12);
  // What asks for nothing.
  EXPECT_EQ(Json::parse(Ask("/api/chat", {{"model", "any"}, {"keep_alive", 0}}))["done_reason"], "load");
  EXPECT_EQ(Json::parse(Ask("/api/generate", {{"model", "any"}}))["done_reason"], "load");
  // Options as Ollama names them: unknown ones are refused, those of its runner taken.
  const std::string text = chat["message"]["content"], stop = Middle(text);
  Json options = Options();
  options.update({{"stop", {stop}}, {"num_ctx", 8192}, {"num_gpu", 99}, {"repeat_last_n", 64}, {"mirostat", 0}});
  const Json stopped = Json::parse(Ask("/api/chat", OllamaChat({{"options", options}})));
  EXPECT_EQ(stopped["message"]["content"], text.substr(0, text.find(stop)));
  EXPECT_EQ(stopped["done_reason"], "stop");
  const auto refused = [&](const std::string& path, const Json& body, const std::string& word) {
    const HttpAnswer answer = server_->Post(path, body);
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_TRUE(answer.json()["error"].is_string()) << answer.body;
    EXPECT_NE(answer.body.find(word), std::string::npos) << answer.body;
  };
  refused("/api/chat", OllamaChat({{"options", {{"num_predict", "x"}}}}), "'options.num_predict'");
  refused("/api/chat", OllamaChat({{"options", {{"warp", 1}}}}), "'options.warp'");
  refused("/api/chat", OllamaChat({{"messages", {{{"role", "king"}, {"content", "a"}}}}}), "'messages[0].role'");
  refused("/api/chat", OllamaChat({{"messages", {{{"role", "user"}, {"content", "a"}, {"images", {"!"}}}}}}),
          "'messages[0].content[0]");
  refused("/api/chat", OllamaChat({{"messages", 7}}), "'messages'");
  refused("/api/chat", OllamaChat({{"think", "hard"}}), "'think'");
  refused("/api/generate", {{"prompt", "a"}, {"template", "{{ .Prompt }}"}}, "'template'");
  refused("/api/generate", {{"prompt", "a"}, {"context", {1, 2}}}, "'context'");
  EXPECT_TRUE(server_->PostText("/api/chat", "{").json()["error"].is_string());

  const Json models = server_->Get("/api/tags").json();
  ASSERT_EQ(models["models"].size(), 1u);
  const std::string name = models["models"][0]["name"];
  EXPECT_EQ(name.find(' '), std::string::npos);
  EXPECT_EQ(server_->Get("/api/ps").json()["models"][0]["context_length"], 96);
  EXPECT_FALSE(server_->Get("/api/version").json()["version"].get<std::string>().empty());
  const Json shown = Json::parse(Ask("/api/show", {{"model", name + ":latest"}}));
  EXPECT_EQ(shown["capabilities"][0], "completion");
  EXPECT_EQ(shown["details"]["family"], "llama");
  EXPECT_EQ(server_->Post("/api/show", {{"model", "other"}}).status, 404);
  EXPECT_NE(server_->Post("/api/pull", {{"model", "other"}}).body.find("one model"), std::string::npos);
}

TEST_F(ApisTest, OllamaTextsAsTheyAre) {
  Json body = {{"prompt", "the man"}, {"raw", true}, {"stream", false}, {"options", Options()}};
  const Json text = {{"prompt", "the man"}, {"max_tokens", 12}, {"temperature", 0}, {"ignore_eos", true}};
  EXPECT_EQ(Json::parse(Ask("/api/generate", body))["response"], TextOf(server_->Post("/v1/completions", text)));
  body["system"] = "be kind";
  EXPECT_EQ(server_->Post("/api/generate", body).status, 400);
  body["raw"] = false;
  Json messages =
      Json::array({{{"role", "system"}, {"content", "be kind"}}, {{"role", "user"}, {"content", "the man"}}});
  EXPECT_EQ(Json::parse(Ask("/api/generate", body))["response"],
            TextOf(server_->Post(kChat, Chat({{"messages", messages}}))));
}

TEST_F(ApisTest, Messages) {
  const Json whole = Json::parse(Ask(kMessages, Message()));
  EXPECT_EQ(whole["type"], "message");
  EXPECT_EQ(whole["role"], "assistant");
  EXPECT_EQ(whole["stop_reason"], "max_tokens");
  EXPECT_TRUE(whole["stop_sequence"].is_null());
  EXPECT_EQ(whole["usage"]["output_tokens"], 12);
  const std::string text = whole["content"][0]["text"], stop = Middle(text);
  const Json stopped = Json::parse(Ask(kMessages, Message({{"stop_sequences", {stop}}})));
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], stop);
  EXPECT_EQ(stopped["content"][0]["text"], text.substr(0, text.find(stop)));

  const std::vector<Json> events = NamedEvents(Ask(kMessages, Message({{"stream", true}})));
  ASSERT_GE(events.size(), 6u);
  EXPECT_EQ(events[0]["type"], "message_start");
  EXPECT_EQ(events[0]["message"]["content"], Json::array());
  EXPECT_EQ(events[1]["type"], "content_block_start");
  EXPECT_EQ(events[2]["type"], "content_block_delta");
  EXPECT_EQ(events[events.size() - 3]["type"], "content_block_stop");
  EXPECT_EQ(events[events.size() - 2]["type"], "message_delta");
  EXPECT_EQ(events[events.size() - 2]["delta"]["stop_reason"], "max_tokens");
  EXPECT_EQ(events.back()["type"], "message_stop");

  // Blocks, a system text, and their count.
  const Json system =
      Json::array({{{"type", "text"}, {"text", "be kind"}, {"cache_control", {{"type", "ephemeral"}}}}});
  const Json blocks =
      Json::array({{{"type", "text"}, {"text", "the man "}}, {{"type", "text"}, {"text", "and the sea"}}});
  const Json messages = Json::array({{{"role", "user"}, {"content", blocks}}});
  const Json same = Json::array({{{"role", "system"}, {"content", "be kind"}}, kHello[0]});
  const HttpAnswer chat = server_->Post(kChat, Chat({{"messages", same}}));
  EXPECT_EQ(Json::parse(Ask(kMessages, Message({{"system", system}, {"messages", messages}})))["content"][0]["text"],
            TextOf(chat));
  EXPECT_EQ(Json::parse(Ask("/v1/messages/count_tokens", {{"system", system}, {"messages", messages}}))["input_tokens"],
            chat.json()["usage"]["prompt_tokens"]);

  const auto refused = [&](const Json& more, const std::string& word) {
    const HttpAnswer answer = server_->Post(kMessages, Message(more));
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_EQ(answer.json()["type"], "error");
    EXPECT_EQ(answer.json()["error"]["type"], "invalid_request_error");
    EXPECT_NE(answer.body.find(word), std::string::npos) << answer.body;
  };
  refused({{"max_tokens", nullptr}}, "'max_tokens'");
  refused({{"messages", Json::array()}}, "'messages'");
  refused({{"messages", {{{"role", "system"}, {"content", "a"}}}}}, "'messages[0].role'");
  refused({{"messages", {{{"role", "user"}, {"content", {{{"type", "document"}}}}}}}}, "'messages[0].content[0].type'");
  refused(
      {{"messages",
        {{{"role", "user"}, {"content", {{{"type", "image"}, {"source", {{"type", "url"}, {"url", "http://a"}}}}}}}}}},
      "fetches nothing");
  refused({{"system", 7}}, "'system'");
  refused({{"temperature", "x"}}, "'temperature'");
  refused({{"warp", 7}}, "'warp'");
  refused({{"tool_choice", {{"type", "some"}}}}, "'tool_choice.type'");
  EXPECT_EQ(server_->PostText(kMessages, "[]").json()["error"]["type"], "invalid_request_error");
}

TEST(Keys, AreTakenAsEachApiSendsThem) {
  const ServerProcess server({"--pot", "96", "--api-key", "secret"});
  EXPECT_EQ(server.PostWith(kMessages, Message(), {{"x-api-key", "secret"}}).status, 200);
  const HttpAnswer wrong = server.PostWith(kMessages, Message(), {{"x-api-key", "guess"}});
  EXPECT_EQ(wrong.status, 401);
  EXPECT_EQ(wrong.json()["error"]["type"], "authentication_error");
  EXPECT_EQ(wrong.json()["type"], "error");
  EXPECT_EQ(server.Post(kMessages, Message()).status, 401);
  EXPECT_TRUE(server.Post("/api/chat", OllamaChat()).json()["error"].is_string());
  EXPECT_EQ(server.PostWith("/api/chat", OllamaChat(), {{"Authorization", "Bearer secret"}}).status, 200);
}

TEST_F(ApisTest, ResponsesAreAStream) {
  const std::vector<Json> events = NamedEvents(Ask(kResponses, Response({{"stream", true}})));
  std::vector<std::string> types;
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["sequence_number"], i);
    const std::string type = events[i]["type"];
    if (types.empty() || types.back() != type) types.push_back(type);
  }
  EXPECT_EQ(types, (std::vector<std::string>{"response.created", "response.in_progress", "response.output_item.added",
                                             "response.content_part.added", "response.output_text.delta",
                                             "response.output_text.done", "response.content_part.done",
                                             "response.output_item.done", "response.incomplete"}));
  const Json& last = events.back()["response"];
  EXPECT_EQ(last["status"], "incomplete");
  EXPECT_EQ(last["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(last["usage"]["output_tokens"], 12);
  EXPECT_EQ(last["store"], false);
  EXPECT_EQ(server_->Get(kResponses + "/" + last["id"].get<std::string>()).status, 404);
}

TEST_F(ApisTest, AStoredResponseGoesOnInItsSession) {
  const Json first = Json::parse(Ask(kResponses, Response({{"store", true}, {"instructions", "be kind"}})));
  EXPECT_EQ(first["store"], true);
  const std::string session = first["weir"]["session"], id = first["id"];
  EXPECT_EQ(server_->Get(kResponses + "/" + id).json(), first);
  const int seen = server_->Get("/v1/sessions/" + session).json()["seen"];
  // Only what is new is read.
  const Json second = Json::parse(
      Ask(kResponses,
          Response(
              {{"store", true}, {"previous_response_id", id}, {"instructions", "be kind"}, {"input", "and the sea"}})));
  EXPECT_EQ(second["previous_response_id"], id);
  EXPECT_EQ(second["weir"]["session"], session);
  EXPECT_LT(second["usage"]["input_tokens"].get<int>(), first["usage"]["input_tokens"].get<int>() + 8);
  EXPECT_GT(second["weir"]["seen"].get<int>(), seen);
  // It is the same as a session's own second question.
  const HttpAnswer made = server_->Post("/v1/sessions", {{"system", "be kind"}});
  const std::string other = made.json()["id"];
  const Json ask = {{"question", kHello[0]["content"]}, {"max_tokens", 12}, {"temperature", 0}, {"ignore_eos", true}};
  Json again = ask;
  again["question"] = "and the sea";
  EXPECT_EQ(TextOf(server_->Post("/v1/sessions/" + other + "/ask", ask)), first["output"][0]["content"][0]["text"]);
  EXPECT_EQ(TextOf(server_->Post("/v1/sessions/" + other + "/ask", again)), second["output"][0]["content"][0]["text"]);
  EXPECT_EQ(server_->Delete("/v1/sessions/" + other).status, 200);
  // A session does not go back.
  const HttpAnswer back = server_->Post(kResponses, Response({{"previous_response_id", id}}));
  EXPECT_EQ(back.status, 409) << back.body;
  EXPECT_EQ(server_->Delete(kResponses + "/" + second["id"].get<std::string>()).status, 200);
  EXPECT_EQ(server_->Get("/v1/sessions/" + session).status, 404);
  const HttpAnswer gone = server_->Post(kResponses, Response({{"previous_response_id", second["id"]}}));
  EXPECT_EQ(gone.status, 404) << gone.body;
  EXPECT_NE(gone.body.find("send the whole conversation"), std::string::npos) << gone.body;
  EXPECT_EQ(server_->Get(kResponses + "/" + id).status, 404);
}

TEST_F(ApisTest, ConversationsAreSessions) {
  const Json made = Json::parse(Ask("/v1/conversations", {{"metadata", {{"a", "b"}}}}));
  const std::string id = made["id"];
  EXPECT_EQ(made["object"], "conversation");
  const Json one = Json::parse(Ask(kResponses, Response({{"store", true}, {"conversation", {{"id", id}}}})));
  EXPECT_EQ(one["conversation"]["id"], id);
  EXPECT_EQ(server_->Get("/v1/conversations/" + id).json()["id"], id);
  EXPECT_EQ(server_->Get("/v1/sessions/" + id).status, 200);
  EXPECT_EQ(server_->Delete("/v1/conversations/" + id).status, 200);
  EXPECT_EQ(server_->Post(kResponses, Response({{"conversation", id}})).status, 404);
  EXPECT_EQ(server_->Post(kResponses, Response({{"conversation", id}, {"previous_response_id", "r"}})).status, 400);
}

TEST_F(ApisTest, StoredResponsesAreBounded) {
  const ServerProcess server({"--pot", "96", "--answer-pots", "1", "--budget", "8MiB"});
  std::vector<std::string> ids;
  for (int i = 0; i < 12; ++i) {
    const HttpAnswer answer = server.Post(kResponses, Response({{"store", true}, {"max_output_tokens", 2}}));
    ASSERT_EQ(answer.status, 200) << answer.body;
    ids.push_back(answer.json()["id"]);
  }
  const Json props = server.Get("/props").json();
  const size_t n = server.Get("/v1/sessions").json()["data"].size();
  EXPECT_GE(n, 1u);
  EXPECT_LE(static_cast<int64_t>(n) * props["session_bytes"].get<int64_t>(), props["budget_bytes"].get<int64_t>() / 2);
  EXPECT_EQ(server.Get(kResponses + "/" + ids[0]).status, 404);
  EXPECT_EQ(server.Get(kResponses + "/" + ids.back()).status, 200);
  EXPECT_EQ(server.Post("/v1/sessions", Json::object()).status, 201);  // there is room for others
}

TEST_F(ApisTest, WhatResponsesRefuse) {
  const auto refused = [&](const Json& more, const std::string& word) {
    const HttpAnswer answer = server_->Post(kResponses, Response(more));
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_NE(answer.body.find(word), std::string::npos) << answer.body;
  };
  refused({{"input", 7}}, "'input'");
  refused({{"input", Json::array()}}, "'input'");
  refused({{"input", {{{"role", "king"}, {"content", "a"}}}}}, "'input[0].role'");
  refused({{"input", {{{"type", "computer_call"}}}}}, "'input[0].type'");
  refused({{"input", {{{"role", "user"}, {"content", {{{"type", "input_file"}}}}}}}}, "'input[0].content[0].type'");
  refused({{"max_output_tokens", "x"}}, "'max_output_tokens'");
  refused({{"tools", {{{"type", "web_search"}}}}}, "'tools'");
  refused({{"background", true}}, "'background'");
  refused({{"text", {{"format", {{"type", "poem"}}}}}}, "'text.format'");
  refused({{"warp", 1}}, "'warp'");
  refused({{"store", true}, {"input", {{{"role", "assistant"}, {"content", "a"}}}}},
          "must end with a message of the user");
  EXPECT_EQ(server_->Get("/v1/sessions").json()["data"].size(), 0u);  // nothing is left of them
}

// A client that tells its whole history with every request, as agents do.
TEST_F(ApisTest, AConversationKeepsItsSession) {
  Json messages = Json::array({{{"role", "system"}, {"content", "be kind"}}, kHello[0]});
  const HttpAnswer first = server_->PostWith(kChat, Chat({{"messages", messages}}), {{"x-session-id", "new"}});
  ASSERT_EQ(first.status, 200) << first.body;
  const std::string id = first.session_id;
  ASSERT_FALSE(id.empty());
  messages.push_back({{"role", "assistant"}, {"content", TextOf(first)}});
  messages.push_back({{"role", "user"}, {"content", "and the sea"}});
  const HttpAnswer second = server_->PostWith(kChat, Chat({{"messages", messages}}), {{"x-session-id", id}});
  ASSERT_EQ(second.status, 200) << second.body;
  EXPECT_EQ(second.session_id, id);
  EXPECT_LT(second.json()["usage"]["prompt_tokens"].get<int>(), first.json()["usage"]["prompt_tokens"].get<int>() + 8);
  // Another client that sends only what is new, through another API.
  const Json ollama = OllamaChat({{"messages", {{{"role", "user"}, {"content", "who?"}}}}});
  EXPECT_EQ(server_->PostWith("/api/chat", ollama, {{"x-session-id", id}}).session_id, id);
  const Json anthropic = Message({{"messages", {{{"role", "user"}, {"content", "why?"}}}}});
  const HttpAnswer third = server_->PostWith(kMessages, anthropic, {{"x-session-id", id}});
  EXPECT_EQ(third.session_id, id);
  EXPECT_GT(third.json()["weir"]["seen"].get<int>(), second.json()["weir"]["seen"].get<int>());
  // Rounds that took place elsewhere are read with their answers.
  Json elsewhere = Json::array({{{"role", "user"}, {"content", "one"}},
                                {{"role", "assistant"}, {"content", "two"}},
                                {{"role", "user"}, {"content", "three"}},
                                {{"role", "user"}, {"content", "four?"}}});
  const HttpAnswer fourth = server_->PostWith(kChat, Chat({{"messages", elsewhere}}), {{"x-session-id", id}});
  EXPECT_EQ(fourth.status, 200) << fourth.body;
  elsewhere.push_back({{"role", "assistant"}, {"content", TextOf(fourth)}});
  const auto refused = [&](const Json& more, int status, const std::string& word, const std::string& session) {
    const HttpAnswer answer = server_->PostWith(kChat, Chat(more), {{"x-session-id", session}});
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_NE(answer.body.find(word), std::string::npos) << answer.body;
  };
  refused({{"messages", elsewhere}}, 400, "must end with a message of the user", id);  // nothing new
  refused({{"messages", {{{"role", "assistant"}, {"content", "a"}}, {{"role", "user"}, {"content", "b"}}}}}, 400,
          "'messages[0]'", id);
  refused({{"messages", {{{"role", "tool"}, {"content", "a"}}, {{"role", "user"}, {"content", "b"}}}}}, 400, "tools",
          id);
  refused({{"temperature", -1}}, 400, "'temperature'", id);
  refused(Json::object(), 404, "no session", "s-0");
  EXPECT_EQ(server_->Delete("/v1/sessions/" + id).status, 200);
}

TEST_F(ApisTest, Embeddings) {
  const std::string path = "/v1/embeddings";
  const Json both = Json::parse(Ask(path, {{"input", {"the man", "a sea of glass and fire"}}}));
  ASSERT_EQ(both["data"].size(), 2u);
  const std::vector<float> one = both["data"][0]["embedding"], two = both["data"][1]["embedding"];
  EXPECT_EQ(one.size(), server_->Get("/v1/models").json()["data"][0]["meta"]["n_embd"].get<size_t>());
  double square = 0, product = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    square += one[i] * one[i];
    product += one[i] * two[i];
  }
  EXPECT_NEAR(square, 1, 1e-4);
  EXPECT_LT(product, 0.9999);
  // Alone, as token ids, in base64, and through Ollama's API it is the same.
  EXPECT_EQ(Json::parse(Ask(path, {{"input", "the man"}}))["data"][0]["embedding"], both["data"][0]["embedding"]);
  const Json ids = server_->Post("/tokenize", {{"content", "the man"}, {"add_special", true}}).json()["tokens"];
  const Json by_ids = Json::parse(Ask(path, {{"input", ids}}));
  EXPECT_EQ(by_ids["data"][0]["embedding"], both["data"][0]["embedding"]);
  EXPECT_EQ(by_ids["usage"]["prompt_tokens"], ids.size());
  const Json coded = Json::parse(Ask(path, {{"input", "the man"}, {"encoding_format", "base64"}}));
  const auto bytes = DecodeBase64(coded["data"][0]["embedding"].get<std::string>());
  ASSERT_TRUE(bytes.ok());
  ASSERT_EQ(bytes->size(), one.size() * 4);
  for (size_t i = 0; i < one.size(); ++i) {
    float value = 0;
    std::memcpy(&value, bytes->data() + 4 * i, 4);
    EXPECT_EQ(value, one[i]);
  }
  EXPECT_EQ(Json::parse(Ask("/api/embed", {{"input", "the man"}}))["embeddings"][0], both["data"][0]["embedding"]);
  EXPECT_EQ(Json::parse(Ask("/api/embeddings", {{"prompt", "the man"}}))["embedding"], both["data"][0]["embedding"]);
  // A text that is longer than the pot.
  const Json longer = Json::parse(Ask(path, {{"input", ManyWords(200)}}));
  EXPECT_GT(longer["usage"]["prompt_tokens"].get<int>(), 96);
  for (const float value : longer["data"][0]["embedding"]) EXPECT_TRUE(std::isfinite(value));
  for (const Json& bad : {Json{{"input", 7}}, Json{{"input", Json::array()}}, Json{{"input", {""}}}, Json::object(),
                          Json{{"input", Json::array({Json::object()})}}, Json{{"input", {1 << 30}}},
                          Json{{"input", "a"}, {"encoding_format", "int8"}}, Json{{"input", "a"}, {"dimensions", 3}}}) {
    EXPECT_EQ(server_->Post(path, bad).status, 400) << bad.dump();
  }
  EXPECT_EQ(server_->Post(path, {{"input", std::vector<std::string>(257, "a")}}).status, 400);
}

TEST_F(ApisTest, Infill) {
  const HttpAnswer none = server_->Post("/infill", {{"input_prefix", "a"}, {"input_suffix", "b"}});
  EXPECT_EQ(none.status, 400);
  EXPECT_NE(none.body.find("cannot fill in text"), std::string::npos) << none.body;
  EditedModel model("llama");
  model.metadata["tokenizer.ggml.fim_pre_token_id"].v = uint32_t{5};
  model.metadata["tokenizer.ggml.fim_suf_token_id"].v = uint32_t{6};
  model.metadata["tokenizer.ggml.fim_mid_token_id"].v = uint32_t{7};
  const TempDir dir;
  const ServerProcess server({"--pot", "96"}, dir.Write("fim.gguf", model.Bytes()));
  const auto tokens = [&](const std::string& text) {
    return server.Post("/tokenize", {{"content", text}}).json()["tokens"];
  };
  Json ids = server.Post("/tokenize", {{"content", ""}, {"add_special", true}}).json()["tokens"];
  ids.push_back(5);
  for (const Json& id : tokens("the man")) ids.push_back(id);
  ids.push_back(6);
  for (const Json& id : tokens("the sea")) ids.push_back(id);
  ids.push_back(7);
  const Json more = {{"temperature", 0}, {"ignore_eos", true}};
  Json text = more, fill = more;
  text.update({{"prompt", ids}, {"max_tokens", 8}});
  fill.update({{"input_prefix", "the man"}, {"input_suffix", "the sea"}, {"n_predict", 8}});
  const std::string want = TextOf(server.Post("/v1/completions", text));
  const Json filled = server.Post("/infill", fill).json();
  EXPECT_EQ(filled["content"], want);
  EXPECT_EQ(filled["tokens_predicted"], 8);
  EXPECT_EQ(filled["stop_type"], "limit");
  fill["stream"] = true;
  std::string said;
  for (const Json& event : server.Post("/infill", fill).events()) said += event["content"].get<std::string>();
  EXPECT_EQ(said, want);
  EXPECT_EQ(server.Post("/infill", {{"input_prefix", 7}}).status, 400);
  EXPECT_EQ(server.Post("/infill", {{"input_extra", {7}}}).status, 400);
}

TEST_F(ApisTest, ContextProtocol) {
  const auto message = [](int id, const std::string& method, const Json& params = Json::object()) {
    return Json{{"jsonrpc", "2.0"}, {"id", id}, {"method", method}, {"params", params}};
  };
  const HttpAnswer begun = server_->Post("/mcp", message(1, "initialize", {{"protocolVersion", "2025-03-26"}}));
  ASSERT_EQ(begun.status, 200) << begun.body;
  EXPECT_EQ(begun.json()["result"]["protocolVersion"], "2025-03-26");
  const std::string id = begun.session_id;
  ASSERT_FALSE(id.empty());
  const auto call = [&](const Json& body) { return server_->PostWith("/mcp", body, {{"Mcp-Session-Id", id}}); };
  EXPECT_EQ(call({{"jsonrpc", "2.0"}, {"method", "notifications/initialized"}}).status, 202);
  const Json tools = call(message(2, "tools/list")).json()["result"]["tools"];
  std::vector<std::string> names;
  for (const Json& tool : tools) names.push_back(tool["name"]);
  EXPECT_EQ(names, (std::vector<std::string>{"append", "ask", "remember", "recall", "watch"}));
  const auto use = [&](const std::string& name, const Json& arguments) {
    return call(message(3, "tools/call", {{"name", name}, {"arguments", arguments}})).json()["result"];
  };
  const Json appended = use("append", {{"text", "the man and the sea"}});
  EXPECT_EQ(appended["isError"], false) << appended.dump();
  EXPECT_EQ(appended["structuredContent"]["session"], id);
  const Json kept = use("remember", {{"text", "the boat"}});
  EXPECT_GT(kept["structuredContent"]["pinned"].get<int>(), appended["structuredContent"]["pinned"].get<int>());
  const Json asked = use("ask", {{"question", "who?"}, {"max_tokens", 4}});
  EXPECT_EQ(asked["isError"], false) << asked.dump();
  EXPECT_EQ(asked["content"][0]["text"], asked["structuredContent"]["answer"]);
  EXPECT_EQ(use("recall", {{"query", "boat"}})["isError"], true);  // this server keeps nothing
  EXPECT_EQ(use("watch", {{"image", "data:image/png;base64,AAAA"}})["isError"], true);
  EXPECT_EQ(use("append", Json::object())["isError"], true);
  EXPECT_EQ(use("append", {{"text", "a"}, {"warp", 1}})["isError"], true);
  EXPECT_EQ(use("ask", {{"question", "a"}, {"session", "s-0"}})["isError"], true);
  const auto code = [&](const Json& body) { return call(body).json()["error"]["code"].get<int>(); };
  EXPECT_EQ(code(message(4, "tools/call", {{"name", "dance"}})), -32602);
  EXPECT_EQ(code(message(4, "dance")), -32601);
  EXPECT_EQ(code({{"jsonrpc", "1.0"}, {"id", 1}, {"method", "ping"}}), -32600);
  EXPECT_EQ(code({{"jsonrpc", "2.0"}, {"id", 1}, {"method", "ping"}, {"params", 7}}), -32602);
  EXPECT_EQ(server_->PostText("/mcp", "{").json()["error"]["code"], -32700);
  EXPECT_EQ(server_->Post("/mcp", message(5, "ping")).status, 400);
  // An unknown version is answered with the newest.
  const HttpAnswer other = server_->Post("/mcp", message(1, "initialize", {{"protocolVersion", "1999"}}));
  EXPECT_EQ(other.json()["result"]["protocolVersion"], "2025-06-18");
  for (const std::string& one : {id, other.session_id}) EXPECT_EQ(server_->Delete("/v1/sessions/" + one).status, 200);
  EXPECT_EQ(call(message(6, "ping")).status, 404);
}

TEST_F(ApisTest, WhatClientsReadOfTheServer) {
  const Json props = server_->Get("/props").json();
  EXPECT_EQ(props["total_slots"], 3);
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 96);
  EXPECT_EQ(props["modalities"]["vision"], false);
  const Json slots = server_->Get("/slots").json();
  ASSERT_EQ(slots.size(), 3u);
  EXPECT_EQ(slots[0]["n_ctx"], 96);
  EXPECT_EQ(slots[2]["is_processing"], false);
  const Json model = server_->Get("/v1/models").json()["data"][0];
  EXPECT_EQ(model["capabilities"][0], "completion");
  const Json info = server_->Get("/tokenizer_info").json();
  EXPECT_TRUE(info["eos_token"].is_string());
  const Json ids = server_->Post("/tokenize", {{"content", "the man"}, {"add_special", true}}).json();
  EXPECT_EQ(server_->Post("/tokenize", {{"prompt", "the man"}, {"add_special_tokens", true}, {"model", "m"}}).json(),
            ids);
  const Json end = server_->Post("/tokenize", {{"prompt", info["eos_token"]}, {"add_special_tokens", false}}).json();
  ASSERT_EQ(end["tokens"].size(), 1u);  // control tokens are recognised, as in vLLM
  EXPECT_EQ(end["tokens"][0], info["eos_token_id"]);
  const Json plain = server_->Post("/tokenize", {{"content", "the man"}}).json();
  EXPECT_EQ(server_->Post("/detokenize", {{"tokens", plain["tokens"]}}).json()["prompt"], "the man");
}

}  // namespace
}  // namespace weir::testing
