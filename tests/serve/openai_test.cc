// SPDX-License-Identifier: Apache-2.0
// The OpenAI routes of the real server, over HTTP.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <set>
#include <thread>

#include "cli/process.h"
#include "serve/openai_client.h"
#include "serve/router.h"
#include "support/build_paths.h"
#include "support/golden.h"

namespace weir::testing {
namespace {

TEST_F(OpenAiTest, WhatTheServerIs) {
  EXPECT_EQ(server_->Get("/health").json()["status"], "ok");
  const Json props = server_->Get("/props").json();
  EXPECT_EQ(props["pot"], 96);
  EXPECT_EQ(props["policy"].get<std::string>().rfind("streaming_llm", 0), 0u);
  const Json& params = props["default_generation_settings"]["params"];
  EXPECT_EQ(params["temperature"], 0.8);  // as `weir run` and llama-server have it
  EXPECT_EQ(params["top_k"], 40);
  EXPECT_EQ(params["top_p"], 0.95);
  EXPECT_EQ(params["min_p"], 0.05);
  EXPECT_EQ(params["seed"], -1);
  EXPECT_EQ(params["n_predict"], 1024);
  const Json models = server_->Get("/v1/models").json();
  ASSERT_EQ(models["data"].size(), 1u);
  const std::string id = models["data"][0]["id"];
  EXPECT_EQ(server_->Get("/v1/models/" + id).json()["id"], id);
  EXPECT_EQ(server_->Get("/v1/models/other").status, 404);
  EXPECT_EQ(server_->Get("/models").json(), models);
  EXPECT_EQ(server_->Get("/v1/health").json()["status"], "ok");
  EXPECT_EQ(server_->Get("/nothing").status, 404);
  EXPECT_EQ(server_->Get("/tokenize").status, 405);
  EXPECT_EQ(server_->Delete("/v1/models").status, 405);
}

TEST_F(OpenAiTest, TokensAndText) {
  const Json tokens = server_->Post("/tokenize", {{"content", "the man"}}).json()["tokens"];
  ASSERT_FALSE(tokens.empty());
  EXPECT_EQ(server_->Post("/detokenize", {{"tokens", tokens}}).json()["content"], "the man");
  EXPECT_EQ(server_->Post("/tokenize", {{"content", ""}}).json(), (Json{{"tokens", Json::array()}}));
  EXPECT_EQ(server_->Post("/detokenize", {{"tokens", {1 << 30}}}).status, 400);
  EXPECT_EQ(server_->Post("/detokenize", {{"tokens", {-1}}}).status, 400);
  EXPECT_EQ(server_->Post("/detokenize", {{"tokens", {1.5}}}).status, 400);
  EXPECT_EQ(server_->Post("/tokenize", {{"content", 7}}).status, 400);
}

TEST_F(OpenAiTest, WhatTheTemplateMakesOfAChat) {
  const Json body = {
      {"messages", {{{"role", "system"}, {"content", "be kind"}}, {{"role", "user"}, {"content", "the man"}}}}};
  const std::string prompt = server_->Post("/apply-template", body).json()["prompt"];
  const size_t system = prompt.find("be kind"), user = prompt.find("the man");
  ASSERT_NE(system, std::string::npos) << prompt;
  ASSERT_NE(user, std::string::npos) << prompt;
  EXPECT_LT(system, user);
  EXPECT_GT(prompt.size(), user + 7);  // what asks for an answer
  const Json ids = server_->Post("/tokenize", {{"content", prompt}, {"add_special", true}, {"parse_special", true}})
                       .json()["tokens"];
  Json chat = body;
  chat["max_tokens"] = 1;
  EXPECT_EQ(server_->Post("/v1/chat/completions", chat).json()["usage"]["prompt_tokens"].get<size_t>(), ids.size());
  EXPECT_EQ(server_->Post("/apply-template", {{"messages", "hello"}}).status, 400);
}

TEST_F(OpenAiTest, AChatWholeAndStreamed) {
  const HttpAnswer whole = server_->Post("/v1/chat/completions", Chat({{"cache_prompt", false}}));
  ASSERT_EQ(whole.status, 200) << whole.body;
  const Json json = whole.json();
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(json["usage"]["completion_tokens"], 12);
  EXPECT_EQ(json["usage"]["total_tokens"], json["usage"]["prompt_tokens"].get<int>() + 12);
  EXPECT_FALSE(TextOf(whole).empty());

  const HttpAnswer streamed = server_->Post("/v1/chat/completions", Chat({{"stream", true}}));
  EXPECT_EQ(streamed.content_type, "text/event-stream");
  EXPECT_EQ(StreamText(streamed), TextOf(whole));
  EXPECT_EQ(TextOf(server_->Post("/chat/completions", Chat())), TextOf(whole));
  const std::vector<Json> events = streamed.events();
  EXPECT_EQ(events[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_TRUE(events[0]["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "length");
  EXPECT_GT(events.size(), 4u);

  const auto with_usage =
      server_
          ->Post("/v1/chat/completions",
                 Chat({{"cache_prompt", false}, {"stream", true}, {"stream_options", {{"include_usage", true}}}}))
          .events();
  EXPECT_TRUE(with_usage.back()["choices"].empty());
  EXPECT_EQ(with_usage.back()["usage"], json["usage"]);
  EXPECT_TRUE(with_usage[0]["usage"].is_null());
}

TEST_F(OpenAiTest, SeedsAndStops) {
  const Json hot = Hot({{"max_tokens", 24}});
  const std::string one = TextOf(server_->Post("/v1/chat/completions", Chat(hot)));
  EXPECT_EQ(TextOf(server_->Post("/v1/chat/completions", Chat(hot))), one);
  Json other = hot;
  other["seed"] = 4;
  EXPECT_NE(TextOf(server_->Post("/v1/chat/completions", Chat(other))), one);
  other["seed"] = -1;  // another one each time
  EXPECT_NE(TextOf(server_->Post("/v1/chat/completions", Chat(other))),
            TextOf(server_->Post("/v1/chat/completions", Chat(other))));

  // With no probability mass left to sample from, the most likely token is taken, whatever the other options.
  const std::string likely =
      TextOf(server_->Post("/v1/chat/completions", Chat({{"temperature", 0}, {"max_tokens", 24}})));
  for (const int top_k : {0, 40}) {
    const Json none = {{"temperature", 1.5}, {"seed", 3}, {"max_tokens", 24}, {"top_p", 0}, {"top_k", top_k}};
    EXPECT_EQ(TextOf(server_->Post("/v1/chat/completions", Chat(none))), likely) << "top_k " << top_k;
  }

  // A stop string across tokens: taken from the middle of the answer.
  ASSERT_GT(one.size(), 12u);
  const std::string stop = Middle(one);
  Json stopping = hot;
  stopping["stop"] = {stop, "never in it \x01"};
  const HttpAnswer stopped = server_->Post("/v1/chat/completions", Chat(stopping));
  EXPECT_EQ(TextOf(stopped), one.substr(0, one.find(stop)));
  EXPECT_EQ(stopped.json()["choices"][0]["finish_reason"], "stop");
  stopping["stream"] = true;
  EXPECT_EQ(StreamText(server_->Post("/v1/chat/completions", Chat(stopping))), one.substr(0, one.find(stop)));
}

TEST_F(OpenAiTest, Likelihoods) {
  const Json chat = server_->Post("/v1/chat/completions", Chat({{"logprobs", true}, {"top_logprobs", 3}})).json();
  const Json& content = chat["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 12u);
  for (const Json& token : content) {
    EXPECT_LE(token["logprob"].get<double>(), 0);
    ASSERT_EQ(token["top_logprobs"].size(), 3u);
    EXPECT_EQ(token["top_logprobs"][0]["logprob"], token["logprob"]);  // greedy
    EXPECT_GE(token["top_logprobs"][0]["logprob"].get<double>(), token["top_logprobs"][1]["logprob"].get<double>());
  }
  // The prompt read at once says of its tokens what is said of them when they are generated.
  const std::string prompt = "the man and";
  const Json generated =
      server_
          ->Post("/v1/completions",
                 {{"prompt", prompt}, {"max_tokens", 8}, {"temperature", 0}, {"logprobs", 2}, {"ignore_eos", true}})
          .json();
  const Json& first = generated["choices"][0];
  ASSERT_EQ(first["logprobs"]["tokens"].size(), 8u);
  const Json ids = server_->Post("/tokenize", {{"content", prompt}, {"add_special", true}}).json()["tokens"];
  const size_t n_prompt = ids.size();
  const Json all = server_
                       ->Post("/v1/completions", {{"prompt", ids},
                                                  {"max_tokens", 8},
                                                  {"temperature", 0},
                                                  {"logprobs", 2},
                                                  {"echo", true},
                                                  {"ignore_eos", true}})
                       .json();
  const Json& echoed = all["choices"][0]["logprobs"];
  ASSERT_EQ(echoed["tokens"].size(), n_prompt + 8);
  EXPECT_TRUE(echoed["token_logprobs"][0].is_null());
  for (size_t i = 1; i < n_prompt; ++i) EXPECT_LE(echoed["token_logprobs"][i].get<double>(), 0) << i;
  EXPECT_EQ(all["choices"][0]["text"], prompt + first["text"].get<std::string>());
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(echoed["token_logprobs"][n_prompt + i].get<double>(),
                first["logprobs"]["token_logprobs"][i].get<double>(), 1e-4);
  }
  // What is said of a prompt's token is what would be said of it when it was generated there.
  for (size_t i = 1; i < n_prompt; ++i) {
    const Json before(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(i));
    // Whatever is drawn: the end of the text would have no likelihoods.
    const Json next =
        server_
            ->Post("/v1/completions", {{"prompt", before}, {"max_tokens", 1}, {"logprobs", 20}, {"ignore_eos", true}})
            .json();
    const Json& there = next["choices"][0]["logprobs"]["top_logprobs"][0];
    ASSERT_EQ(echoed["top_logprobs"][i].size(), 2u);
    for (const auto& [token, logprob] : echoed["top_logprobs"][i].items()) {
      ASSERT_TRUE(there.contains(token)) << token << " in " << there.dump();
      EXPECT_NEAR(logprob.get<double>(), there[token].get<double>(), 2e-3) << i;
    }
  }
  const Json read =
      server_->Post("/v1/completions", {{"prompt", ids}, {"max_tokens", 0}, {"logprobs", 2}, {"echo", true}}).json();
  EXPECT_EQ(read["choices"][0]["logprobs"]["tokens"].size(), n_prompt);
  EXPECT_EQ(read["usage"]["completion_tokens"], 0);
}

TEST_F(OpenAiTest, ManyPrompts) {
  const Json one = {{"max_tokens", 6}, {"temperature", 0}, {"ignore_eos", true}};
  const auto with = [&](const Json& prompt, bool stream = false) {
    Json body = one;
    body["prompt"] = prompt;
    body["stream"] = stream;
    return server_->Post("/v1/completions", body);
  };
  const std::string a = TextOf(with("the man")), b = TextOf(with("a sea of"));
  const Json both = with(Json::array({"the man", "a sea of"})).json();
  ASSERT_EQ(both["choices"].size(), 2u);
  EXPECT_EQ(both["choices"][0]["text"], a);
  EXPECT_EQ(both["choices"][1]["text"], b);
  EXPECT_EQ(both["choices"][1]["index"], 1);
  EXPECT_EQ(both["usage"]["completion_tokens"], 12);
  const HttpAnswer streamed = with(Json::array({"the man", "a sea of"}), true);
  EXPECT_EQ(StreamText(streamed, 0), a);
  EXPECT_EQ(StreamText(streamed, 1), b);
  const Json ids = server_->Post("/tokenize", {{"content", "the man"}, {"add_special", true}}).json()["tokens"];
  EXPECT_EQ(TextOf(with(ids)), a);
  EXPECT_EQ(TextOf(with(Json::array({ids}))), a);
}

TEST_F(OpenAiTest, LongPromptsAreReadAndTheAnswerSaysSo) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the man and the sea, ";
  const Json json =
      server_->Post("/v1/completions", {{"prompt", text}, {"max_tokens", 4}, {"ignore_eos", true}}).json();
  EXPECT_GT(json["weir"]["dropped"].get<int>(), 100) << json.dump();
  EXPECT_EQ(json["weir"]["seen"], json["weir"]["kept"].get<int>() + json["weir"]["dropped"].get<int>());
  const std::string metrics = server_->Get("/metrics").body;
  EXPECT_NE(metrics.find("weir_selections_total{policy=\"streaming_llm\"}"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("weir_ttft_seconds_bucket{le=\"+Inf\"}"), std::string::npos);
  EXPECT_NE(metrics.find("weir_requests_total{route=\"POST /v1/completions\",status=\"200\"}"), std::string::npos);
}

TEST_F(OpenAiTest, ManyClientsGetTheAnswersOfOne) {
  std::vector<std::string> alone, together(12);
  const auto ask = [&](size_t i) {
    return TextOf(server_->Post("/v1/completions", {{"prompt", "the man " + std::to_string(i % 4)},
                                                    {"max_tokens", 16},
                                                    {"temperature", 0.9},
                                                    {"seed", i % 4},
                                                    {"ignore_eos", true}}));
  };
  for (size_t i = 0; i < 4; ++i) alone.push_back(ask(i));
  EXPECT_EQ(std::set<std::string>(alone.begin(), alone.end()).size(), 4u);
  std::vector<std::thread> clients;
  for (size_t i = 0; i < together.size(); ++i) clients.emplace_back([&, i] { together[i] = ask(i); });
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < together.size(); ++i) EXPECT_EQ(together[i], alone[i % 4]) << i;
}

TEST_F(OpenAiTest, WrongRequestsAreRefusedByName) {
  const auto refused = [&](const std::string& path, const Json& body, const std::string& param) {
    const HttpAnswer answer = server_->Post(path, body);
    EXPECT_EQ(answer.status, 400) << body.dump() << "\n" << answer.body;
    const Json error = answer.json()["error"];
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_EQ(error["param"].is_string() ? error["param"].get<std::string>() : "", param) << answer.body;
    EXPECT_FALSE(error["message"].get<std::string>().empty());
  };
  const std::string chat = "/v1/chat/completions", text = "/v1/completions";
  refused(chat, {{"messages", "hello"}}, "messages");
  refused(chat, Json::object(), "messages");
  refused(chat, {{"messages", Json::array()}}, "messages");
  refused(chat, {{"messages", {{{"role", "user"}}}}}, "messages[0].content");
  refused(chat, {{"messages", {{{"role", "robot"}, {"content", "x"}}}}}, "messages[0].role");
  refused(chat, {{"messages", {{{"role", "user"}, {"content", {{{"type", "image_url"}, {"image_url", "x"}}}}}}}},
          "messages[0].content[0].type");
  refused(chat, Chat({{"temperature", "hot"}}), "temperature");
  refused(chat, Chat({{"temperature", -1}}), "temperature");
  refused(chat, Chat({{"top_p", 2}}), "top_p");
  refused(chat, Chat({{"max_tokens", -2}}), "max_tokens");
  refused(chat, Chat({{"max_tokens", -1}, {"logprobs", true}}), "max_tokens");
  refused(chat, Chat({{"repeat_last_n", -2}}), "repeat_last_n");
  refused(chat, Chat({{"max_tokens", 1e30}}), "max_tokens");
  refused(chat, Chat({{"stream", "yes"}}), "stream");
  refused(chat, Chat({{"stream_options", {{"include_usage", true}}}}), "stream_options");
  refused(chat, Chat({{"stream", true}, {"stream_options", {{"usage", true}}}}), "stream_options.usage");
  refused(chat, Chat({{"stop", 7}}), "stop");
  refused(chat, Chat({{"n", 0}}), "n");
  refused(chat, Chat({{"n", 17}}), "n");
  refused(chat, Chat({{"presence_penalty", 3}}), "presence_penalty");
  refused(chat, Chat({{"frequency_penalty", "a"}}), "frequency_penalty");
  refused(chat, Chat({{"logit_bias", {{"the", 1}}}}), "logit_bias");
  refused(chat, Chat({{"logit_bias", {{"99999999", 1}}}}), "logit_bias");
  refused(chat, Chat({{"logit_bias", {{"7", 101}}}}), "logit_bias");
  refused(chat, Chat({{"logit_bias", {1, 2}}}), "logit_bias");
  refused(chat, Chat({{"logprobs", true}, {"top_logprobs", 20}, {"max_tokens", 7000}}), "max_tokens");
  refused(chat, Chat({{"response_format", {{"type", "xml"}}}}), "response_format.type");
  refused(chat, Chat({{"response_format", {{"type", "json_schema"}}}}), "response_format.schema");
  refused(chat, Chat({{"response_format", {{"type", "json_object"}}}, {"regex", "a"}}), "regex");
  refused(chat, Chat({{"choices", {1, 2}}}), "choices");
  refused(chat, Chat({{"grammar", 7}}), "grammar");
  refused(chat, Chat({{"top_logprobs", 3}}), "top_logprobs");
  refused(chat, Chat({{"logprobs", true}, {"top_logprobs", 21}}), "top_logprobs");
  refused(chat, Chat({{"colour", "red"}}), "colour");
  refused(chat, Chat({{"tools", {{{"type", "function"}}}}}), "tools[0].function");
  refused(chat, Chat({{"seed", "a"}}), "seed");
  refused(chat, Chat({{"cache_prompt", 1}}), "cache_prompt");
  refused(chat, Chat({{"seed", 18446744073709551615u}}), "seed");
  refused(text, {{"prompt", 7}}, "prompt");
  refused(text, Json::object(), "prompt");
  refused(text, {{"prompt", Json::array()}}, "prompt");
  refused(text, {{"prompt", {1, 2, 99999999}}}, "prompt[2]");
  refused(text, {{"prompt", {"a", 7}}}, "prompt");
  refused(text, {{"prompt", "a"}, {"logprobs", true}}, "logprobs");
  refused(text, {{"prompt", "a"}, {"suffix", "b"}}, "suffix");
  refused(text, {{"prompt", ManyWords(60000)}, {"echo", true}, {"logprobs", 20}}, "echo");
  refused(text, {{"prompt", ManyWords(80000)}, {"echo", true}, {"n", 16}}, "echo");
}

TEST(OpenAiOverflow, OnlyErrorKnowsALimit) {
  const ServerProcess server({"--pot", "64", "--on-overflow", "error"});
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the man and the sea, ";
  const HttpAnswer answer = server.Post("/v1/completions", {{"prompt", text}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json()["error"]["code"], "context_length_exceeded");
  const Json full =
      server.Post("/v1/completions", {{"prompt", "the man"}, {"max_tokens", 500}, {"ignore_eos", true}}).json();
  EXPECT_EQ(full["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(full["weir"]["dropped"], 0);
}

TEST(OpenAiPort, HasOneServer) {
  const ServerProcess server({"--pot", "64"});
  const std::string port = std::to_string(server.port());
  RunOptions options;
  options.timeout_s = 20;
  const RunResult second =
      RunWeir({"serve", "-m", GoldenDir() + "llama.gguf", "-t", "1", "--pot", "64", "--port", port}, options);
  EXPECT_EQ(second.code, 2) << second.err;
  EXPECT_NE(second.err.find("cannot listen on 127.0.0.1 port " + port), std::string::npos) << second.err;
  EXPECT_EQ(server.Get("/health").status, 200);
}

// Keep-alive: neither a client nor a proxy may time out.
TEST(OpenAiSilence, AStreamSaysThatItReadsOrWaits) {
  const ServerProcess server({"--pot", "64", "--answer-pots", "1"});
  const auto ask = [&](const std::string& prompt) {
    const std::string body = Json{{"prompt", prompt}, {"max_tokens", 4}, {"stream", true}, {"ignore_eos", true}}.dump();
    const std::string bytes =
        "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + std::to_string(body.size()) +
        "\r\n\r\n" + body;
    const int fd = server.Connect();
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n = send(fd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (n <= 0) break;
      at += static_cast<size_t>(n);
    }
    return fd;
  };
  // Everything until that text, or until a minute is over.
  const auto read_until = [](int fd, const std::string& text) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    std::string out;
    while (out.find(text) == std::string::npos && std::chrono::steady_clock::now() < end) {
      pollfd wait{fd, POLLIN, 0};
      char buffer[4096];
      if (poll(&wait, 1, 1000) <= 0) continue;
      const ssize_t n = recv(fd, buffer, sizeof(buffer), 0);
      if (n <= 0) break;
      out.append(buffer, static_cast<size_t>(n));
    }
    return out;
  };
  const int reader = ask(ManyWords(900000));  // for far longer than the first sign of life takes to come
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (server.Get("/metrics").body.find("\nweir_answer_pots_busy 1\n") == std::string::npos) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const int waiter = ask("the man");
  const std::string reading = read_until(reader, " tokens\n\n");
  EXPECT_EQ(reading.rfind("HTTP/1.1 200", 0), 0u) << reading;
  long long n_read = 0, n_prompt = 0;
  const size_t at = reading.find(": reading ");
  ASSERT_NE(at, std::string::npos) << reading;
  EXPECT_EQ(std::sscanf(reading.c_str() + at, ": reading %lld/%lld tokens", &n_read, &n_prompt), 2);
  EXPECT_GT(n_read, 0);
  EXPECT_LT(n_read, n_prompt);
  const std::string waiting = read_until(waiter, ": waiting\n\n");
  EXPECT_NE(waiting.find("text/event-stream"), std::string::npos) << waiting;
  EXPECT_NE(waiting.find(": waiting\n\n"), std::string::npos) << waiting;
  close(reader);
  const std::string answer = read_until(waiter, "[DONE]");
  EXPECT_NE(answer.find("data: {"), std::string::npos) << answer;
  EXPECT_NE(answer.find("data: [DONE]"), std::string::npos) << answer;
  close(waiter);
}

TEST(OpenAiKey, AWrongOneIsRefused) {
  const ServerProcess server({"--pot", "64", "--api-key", "secret"});
  EXPECT_EQ(server.Get("/health").status, 200);
  for (const char* key : {"", "wrong", "secre", "secrets"}) {
    const HttpAnswer answer = server.Get("/props", key);
    EXPECT_EQ(answer.status, 401) << key;
    EXPECT_EQ(answer.json()["error"]["code"], "invalid_api_key");
    EXPECT_EQ(server.Post("/v1/completions", {{"prompt", "a"}}, key).status, 401);
  }
  EXPECT_EQ(server.Post("/v1/completions", {{"prompt", "a"}}, "secret").status, 200);
  // The model's name needs no key, its other properties do, and a wrong key is never accepted.
  for (const char* path : {"/v1/models", "/models"}) {
    const Json open = server.Get(path).json(), known = server.Get(path, "secret").json();
    EXPECT_EQ(open["data"][0]["id"], known["data"][0]["id"]) << path;
    EXPECT_FALSE(open["data"][0].contains("meta")) << open.dump();
    EXPECT_TRUE(known["data"][0].contains("meta")) << known.dump();
    EXPECT_EQ(server.Get(path, "wrong").status, 401) << path;
  }
  EXPECT_EQ(server.Get("/v1/models/" + server.Get("/models").json()["data"][0]["id"].get<std::string>()).status, 401);
  EXPECT_EQ(server.Get("/v1/health").status, 200);
}

TEST(OpenAiKey, ThereMayBeSeveral) {
  const TempDir folder;
  const std::string file = folder.Write("keys", "first\r\n\n \t\nsecond, with a comma \n  third");
  const auto expect = [](const std::vector<std::string>& flags, const std::vector<std::string>& known,
                         const std::vector<std::string>& unknown) {
    const ServerProcess server(flags);
    for (const std::string& key : known) EXPECT_EQ(server.Get("/props", key).status, 200) << key;
    for (const std::string& key : unknown) EXPECT_EQ(server.Get("/props", key).status, 401) << key;
  };
  expect({"--pot", "64", "--api-key-file", file}, {"first", "second, with a comma", "third"},
         {"", "second", "firstthird", "thir", "thirds"});
  expect({"--pot", "64", "--api-key", "a,b ,,c"}, {"a", "b", "c"}, {"", "a,b ,,c", "a,b", ",", "d"});
  const auto refused = [&](const std::vector<std::string>& flags, const std::string& word) {
    std::vector<std::string> words = {"serve", "-m", GoldenDir() + "llama.gguf", "--port", "0"};
    words.insert(words.end(), flags.begin(), flags.end());
    const RunResult run = RunWeir(words);
    EXPECT_EQ(run.code, 2) << run.err;
    EXPECT_NE(run.err.find(word), std::string::npos) << run.err;
  };
  refused({"--api-key-file", folder.Write("none", "\n \r\n")}, "contains no key");
  refused({"--api-key-file", folder.Write("control", "good\nb\x01\n")}, "line 2 has a control character");
  refused({"--api-key-file", folder.Write("tab", "a\tb")}, "line 1 has a control character");
  refused({"--api-key", " , "}, "contains no key");
}

TEST(OpenApiFile, NamesExactlyTheRoutes) {
  std::ifstream file(SourceDir() + "/docs/openapi.yaml");
  std::set<std::string> written, served;
  std::string path;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("  /", 0) == 0) path = line.substr(2, line.find(':') - 2);
    for (const char* method : {"get", "post", "put", "patch", "delete"}) {
      if (line == "    " + std::string(method) + ":") written.insert(std::string(method) + " " + path);
    }
  }
  for (const RouteInfo* route : AllRoutes()) {
    std::string method = route->method;
    for (char& c : method) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    served.insert(method + " " + route->path);
  }
  EXPECT_EQ(written, served);
}

}  // namespace
}  // namespace weir::testing
