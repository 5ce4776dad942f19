// SPDX-License-Identifier: Apache-2.0
// What goes wrong in the other APIs of the real server: requests that stop midway, that collide, that nobody checked,
// and what clients make of the errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cli/edited_model.h"
#include "cli/process.h"
#include "serve/openai_client.h"

namespace weir::testing {
namespace {

const std::string kChat = "/v1/chat/completions", kResponses = "/v1/responses", kSessions = "/v1/sessions";

class ApisFaultsTest : public OpenAiTest {};

Json Said(const std::string& role, const std::string& text) { return {{"role", role}, {"content", text}}; }

Json Response(const Json& more = Json::object()) {
  Json body = {
      {"model", "any"}, {"input", kHello}, {"max_output_tokens", 12}, {"temperature", 0}, {"ignore_eos", true}};
  body.update(more);
  return body;
}

HttpAnswer InSession(const ServerProcess& server, const std::string& session, const Json& messages) {
  return server.PostWith(kChat, Chat({{"messages", messages}}), {{"x-session-id", session}});
}

std::string WithHead(const std::string& path, const Json& body, const std::string& headers) {
  const std::string text = body.dump();
  return "POST " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + headers +
         "Content-Type: application/json\r\nContent-Length: " + std::to_string(text.size()) + "\r\n\r\n" + text;
}

size_t NumSessions(const ServerProcess& server) { return server.Get(kSessions).json()["data"].size(); }

Json Call(int id, const std::string& method, const Json& params = Json::object()) {
  return {{"jsonrpc", "2.0"}, {"id", id}, {"method", method}, {"params", params}};
}

TEST_F(ApisFaultsTest, ToolsOfTheContextProtocolCheckTheirArguments) {
  const HttpAnswer begun = server_->Post("/mcp", Call(1, "initialize"));
  const std::string id = begun.session_id;
  std::string lines;
  const auto check = [&](const Json& arguments, const std::string& tool, const std::string& word) {
    const Json body = Call(7, "tools/call", {{"name", tool}, {"arguments", arguments}});
    lines += body.dump() + "\n";
    const HttpAnswer answer = server_->PostWith("/mcp", body, {{"Mcp-Session-Id", id}});
    EXPECT_EQ(answer.status, 200) << answer.body;
    const Json result = answer.json()["result"];
    EXPECT_EQ(result["isError"], true) << answer.body;
    EXPECT_NE(answer.body.find(word), std::string::npos) << answer.body;
  };
  for (const Json& none : {Json(5), Json("x"), Json::array()}) {
    for (const char* tool : {"ask", "append", "recall"}) check(none, tool, "must be an object");
  }
  check({{"question", "who?"}, {"session", 5}}, "ask", "'session'");
  check({{"query", std::string((1 << 16) + 1, 'a')}}, "recall", "'query' may have at most 65536 bytes");
  EXPECT_EQ(server_->Delete(kSessions + "/" + id).status, 200);
  // The same on standard input: the process, and what it remembers, goes on.
  RunOptions input;
  input.input = lines + Call(8, "ping").dump() + "\n";
  const RunResult run = RunWeir({"mcp", "-m", ModelPath("llama"), "--pot", "96"}, input);
  EXPECT_EQ(run.code, 0) << run.err;
  const std::vector<std::string> answers = Lines(run.out);
  ASSERT_EQ(answers.size(), 12u) << run.out;
  EXPECT_EQ(Json::parse(answers.back())["id"], 8);
}

TEST_F(ApisFaultsTest, OnlyWhatBeginsWellGetsASession) {
  const size_t n = NumSessions(*server_);
  for (const Json& bad : {Json{{"method", "initialize"}}, Json{{"jsonrpc", "2.0"}, {"method", "initialize"}},
                          Json{{"jsonrpc", "2.0"}, {"id", 1}, {"method", "initialize"}, {"params", 7}}}) {
    const HttpAnswer answer = server_->Post("/mcp", bad);
    EXPECT_TRUE(answer.session_id.empty()) << answer.body;
  }
  EXPECT_EQ(NumSessions(*server_), n);
}

TEST_F(ApisFaultsTest, MessagesOfTheContextProtocolMayComeAsAList) {
  const HttpAnswer begun = server_->Post("/mcp", Call(1, "initialize", {{"protocolVersion", "2025-03-26"}}));
  ASSERT_EQ(begun.json()["result"]["protocolVersion"], "2025-03-26");
  const std::string id = begun.session_id;
  const auto send = [&](const Json& list) { return server_->PostWith("/mcp", list, {{"Mcp-Session-Id", id}}); };
  const Json note = {{"jsonrpc", "2.0"}, {"method", "notifications/initialized"}};
  const Json answers = send(Json::array({Call(2, "ping"), note, 7, Call(3, "dance")})).json();
  ASSERT_EQ(answers.size(), 3u) << answers.dump();
  EXPECT_EQ(answers[0]["id"], 2);
  EXPECT_EQ(answers[1]["error"]["code"], -32600);
  EXPECT_EQ(answers[2]["error"]["code"], -32601);
  EXPECT_EQ(send(Json::array({note})).status, 202);
  EXPECT_EQ(send(Json::array()).json()["error"]["code"], -32600);
  EXPECT_EQ(send(Json(std::vector<Json>(65, Call(2, "ping")))).json()["error"]["code"], -32700);
  EXPECT_EQ(server_->PostText("/mcp", R"([1],"a":[2])").json()["error"]["code"], -32700);
  EXPECT_EQ(server_->Delete(kSessions + "/" + id).status, 200);
}

// An answer of megabytes that was given elsewhere is read in steps: the session can be deleted in between, and the
// client is told that a part of its request was read.
TEST_F(ApisFaultsTest, ALongRoundCanBeStopped) {
  const std::string id = server_->Post(kSessions, Json::object()).json()["id"];
  const Json messages = Json::array({Said("user", "tell"), Said("assistant", ManyWords(500000)), Said("user", "who?")});
  HttpAnswer answer;
  std::thread chat([&] { answer = InSession(*server_, id, messages); });
  for (int64_t seen = 0; seen < 1000;) {
    seen = server_->Get(kSessions + "/" + id).json().value("seen", 1000);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const auto begun = Clock::now();
  EXPECT_EQ(server_->Delete(kSessions + "/" + id).status, 200);
  EXPECT_LT(Clock::now() - begun, std::chrono::seconds(5));
  chat.join();
  EXPECT_EQ(answer.status, 409) << answer.body;
  EXPECT_EQ(answer.json()["error"]["code"], "cut_short");
}

// A stream whose history takes long says that it lives before it has anything to say. Here it waits for another answer.
TEST_F(ApisFaultsTest, AStreamLivesWhileItsHistoryWaits) {
  const std::string id = server_->Post(kSessions, Json::object()).json()["id"];
  const auto seen = [&] { return server_->Get(kSessions + "/" + id).json().value("seen", 0); };
  std::thread other([&] {
    const Json ask = {{"question", "tell"}, {"max_tokens", -1}, {"ignore_eos", true}};
    (void)server_->Post(kSessions + "/" + id + "/ask", ask);
  });
  while (seen() < 100) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Json messages = Json::array({Said("user", "tell"), Said("assistant", "much"), Said("user", "who?")});
  std::string answer;
  std::thread chat([&] {
    answer = server_->Raw(WithHead(kChat, Chat({{"messages", messages}, {"stream", true}}),
                                   "Connection: close\r\nx-session-id: " + id + "\r\n"));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(6500));
  EXPECT_EQ(server_->Delete(kSessions + "/" + id).status, 200);
  chat.join();
  other.join();
  EXPECT_EQ(answer.rfind("HTTP/1.1 200", 0), 0u) << answer;
  const size_t lives = answer.find("\n: "), error = answer.find("\"error\"");
  EXPECT_NE(lives, std::string::npos) << answer;
  EXPECT_NE(error, std::string::npos) << answer;
  EXPECT_LT(lives, error);
}

TEST_F(ApisFaultsTest, WhatCannotFitIsNotToldToTryAgain) {
  const ServerProcess server({"--pot", "96", "--on-overflow", "error"});
  const Json history = Json::array(
      {Said("user", ManyWords(5)), Said("assistant", "yes"), Said("user", ManyWords(200)), Said("user", "who?")});
  const std::string id = server.Post(kSessions, Json::object()).json()["id"];
  const std::string answer =
      server.Raw(WithHead(kChat, Chat({{"messages", history}}), "Connection: close\r\nx-session-id: " + id + "\r\n"));
  EXPECT_EQ(answer.rfind("HTTP/1.1 400", 0), 0u) << answer;
  EXPECT_NE(answer.find("context_length_exceeded"), std::string::npos) << answer;
  EXPECT_NE(answer.find("x-should-retry: false\r\n"), std::string::npos) << answer;  // the first round was read
  const HttpAnswer embedding = server.Post("/v1/embeddings", {{"input", ManyWords(200)}});
  EXPECT_EQ(embedding.status, 400) << embedding.body;
  EXPECT_EQ(embedding.json()["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(server.Post("/api/embed", {{"input", ManyWords(200)}}).status, 400);
}

// Two requests that go on from one response: only one of them can.
TEST_F(ApisFaultsTest, AResponseIsContinuedOnce) {
  const Json first = server_->Post(kResponses, Response()).json();
  const Json more = Response({{"previous_response_id", first["id"]}, {"max_output_tokens", 400}});
  HttpAnswer one, two;
  std::thread other([&] { one = server_->Post(kResponses, more); });
  two = server_->Post(kResponses, more);
  other.join();
  EXPECT_EQ(std::min(one.status, two.status), 200) << one.body << two.body;
  EXPECT_EQ(std::max(one.status, two.status), 409) << one.body << two.body;
  const Json second = (one.status == 200 ? one : two).json();
  const std::string refused = server_->Raw(WithHead(kResponses, more, "Connection: close\r\n"));
  EXPECT_EQ(refused.rfind("HTTP/1.1 409", 0), 0u) << refused;
  EXPECT_NE(refused.find("x-should-retry: false\r\n"), std::string::npos) << refused;
  // One that is refused before it read anything leaves the place as it was.
  Json bad = Response({{"previous_response_id", second["id"]}, {"top_k", "x"}});
  EXPECT_EQ(server_->Post(kResponses, bad).status, 400);
  const Json third = Response({{"previous_response_id", second["id"]}, {"input", "and the sea"}});
  EXPECT_EQ(server_->Post(kResponses, third).status, 200);
}

TEST_F(ApisFaultsTest, WhatIsNotStoredCanOnlyBeContinued) {
  const Json first = server_->Post(kResponses, Response()).json();
  EXPECT_EQ(first["store"], true);
  const Json second =
      server_->Post(kResponses, Response({{"previous_response_id", first["id"]}, {"store", false}})).json();
  EXPECT_EQ(second["store"], false) << second.dump();
  EXPECT_EQ(server_->Get(kResponses + "/" + second["id"].get<std::string>()).status, 404);
  const HttpAnswer third = server_->Post(kResponses, Response({{"previous_response_id", second["id"]}}));
  EXPECT_EQ(third.status, 200) << third.body;
  const std::string id = server_->Post("/v1/conversations", Json::object()).json()["id"];
  const Json in_one = server_->Post(kResponses, Response({{"conversation", id}, {"store", false}})).json();
  EXPECT_EQ(in_one["store"], false);
  EXPECT_EQ(server_->Get(kResponses + "/" + in_one["id"].get<std::string>()).status, 404);
  EXPECT_EQ(server_->Delete("/v1/conversations/" + id).status, 200);
}

// Where nothing says `store`, what a chat takes is answered, if need be without a session.
TEST_F(ApisFaultsTest, WhatASessionCannotHoldIsAnsweredWithoutOne) {
  const auto check = [&](const Json& more) {
    const HttpAnswer answer = server_->Post(kResponses, Response(more));
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.json()["store"], false) << answer.body;
    Json stored = more;
    stored["store"] = true;
    EXPECT_EQ(server_->Post(kResponses, Response(stored)).status, 400);
  };
  const size_t n = NumSessions(*server_);
  check({{"input", {Said("assistant", "how can I help?"), Said("user", "who?")}}});
  check({{"input", {Said("user", "who?"), Said("assistant", "the man")}}});
  check({{"instructions", ManyWords(5000)}});  // more than a session's system message may have
  check({{"instructions", ManyWords(300)}});   // more than the pot holds
  EXPECT_LE(NumSessions(*server_), n);
}

TEST_F(ApisFaultsTest, MessagesOfTheAssistantAreJoined) {
  const Json twice =
      Json::array({Said("user", "one"), Said("assistant", "two"), Said("assistant", "three"), Said("user", "four?")});
  const Json joined = Json::array({Said("user", "one"), Said("assistant", "two\n\nthree"), Said("user", "four?")});
  const HttpAnswer answer = InSession(*server_, "new", twice), other = InSession(*server_, "new", joined);
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(TextOf(answer), TextOf(other));
  // The session knows both messages again.
  Json more = twice;
  more.push_back(Said("assistant", TextOf(answer)));
  more.push_back(Said("user", "five?"));
  const HttpAnswer second = InSession(*server_, answer.session_id, more);
  EXPECT_EQ(second.status, 200) << second.body;
  EXPECT_LT(second.json()["usage"]["prompt_tokens"].get<int>(), answer.json()["usage"]["prompt_tokens"].get<int>() + 8);
  for (const HttpAnswer& one : {answer, other})
    EXPECT_EQ(server_->Delete(kSessions + "/" + one.session_id).status, 200);
}

TEST_F(ApisFaultsTest, TheEndOfALongMessageIsTheQuestion) {
  const std::string text = ManyWords(5000) + "and the sea?";
  const HttpAnswer plain = InSession(*server_, "new", Json::array({Said("user", text)}));
  const HttpAnswer ended = InSession(*server_, "new", Json::array({Said("user", text + "\n\n")}));
  ASSERT_EQ(plain.status, 200) << plain.body;
  EXPECT_EQ(TextOf(plain), TextOf(ended));
  EXPECT_EQ(plain.json()["usage"]["prompt_tokens"], ended.json()["usage"]["prompt_tokens"]);
  for (const HttpAnswer& one : {plain, ended}) EXPECT_EQ(server_->Delete(kSessions + "/" + one.session_id).status, 200);
}

TEST_F(ApisFaultsTest, ANullIsNoLimit) {
  const HttpAnswer answer = server_->PostWith(kChat, Chat({{"max_completion_tokens", nullptr}, {"max_tokens", 5}}),
                                              {{"x-session-id", "new"}});
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json()["usage"]["completion_tokens"], 5);
  EXPECT_EQ(server_->Delete(kSessions + "/" + answer.session_id).status, 200);
}

TEST_F(ApisFaultsTest, PagesMayReadTheSessionsId) {
  const ServerProcess server({"--pot", "96", "--allow-origin", "https://page.example"});
  const std::string answer = server.Raw(
      "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: https://page.example\r\nConnection: close\r\n\r\n");
  const size_t begin = answer.find("Access-Control-Expose-Headers: ");
  ASSERT_NE(begin, std::string::npos) << answer;
  const std::string exposed = answer.substr(begin, answer.find('\r', begin) - begin);
  for (const char* name : {"Retry-After", "x-session-id", "Mcp-Session-Id", "x-should-retry"}) {
    EXPECT_NE(exposed.find(name), std::string::npos) << exposed;
  }
}

// As llama.vim and llama.vscode send it.
TEST_F(ApisFaultsTest, EditorsSayWhatTheyWant) {
  EditedModel model("llama");
  model.metadata["tokenizer.ggml.fim_pre_token_id"].v = uint32_t{5};
  model.metadata["tokenizer.ggml.fim_suf_token_id"].v = uint32_t{6};
  model.metadata["tokenizer.ggml.fim_mid_token_id"].v = uint32_t{7};
  const TempDir dir;
  const ServerProcess server({"--pot", "96"}, dir.Write("fim.gguf", model.Bytes()));
  Json fill = {{"input_prefix", "the man"}, {"input_suffix", "the sea"}, {"n_predict", 4}, {"ignore_eos", true}};
  const HttpAnswer none = server.Post("/infill", fill);
  ASSERT_EQ(none.status, 200) << none.body;
  for (const Json& samplers : {Json::array({"top_k", "top_p", "infill"}), Json::array()}) {
    fill["samplers"] = samplers;
    EXPECT_EQ(server.Post("/infill", fill).status, 200);
  }
  fill["response_fields"] = {"content", "timings/prompt_n", "timings/none", "none", "tokens_cached"};
  const HttpAnswer some = server.Post("/infill", fill);
  ASSERT_EQ(some.status, 200) << some.body;
  std::vector<std::string> keys;
  const Json fields = some.json();
  for (const auto& item : fields.items()) keys.push_back(item.key());
  EXPECT_EQ(keys, (std::vector<std::string>{"content", "timings/prompt_n", "tokens_cached"}));
  for (const Json& bad : {Json(7), Json::array({7}), Json(std::vector<std::string>(65, "content"))}) {
    fill["response_fields"] = bad;
    EXPECT_EQ(server.Post("/infill", fill).status, 400);
  }
}

}  // namespace
}  // namespace weir::testing
