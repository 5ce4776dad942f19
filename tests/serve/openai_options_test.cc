// What a request may ask of its answer beyond the plain one: several of them, biases, penalties; and what is told of
// it.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "serve/openai_client.h"

namespace weir::testing {
namespace {

class OpenAiOptionsTest : public OpenAiTest {};

TEST_F(OpenAiOptionsTest, SeveralAnswersToOnePrompt) {
  const Json hot = {{"temperature", 1.5}, {"seed", 3}, {"max_tokens", 16}};
  std::vector<std::string> want;
  for (int k = 0; k < 3; ++k) {
    Json one = hot;
    one["seed"] = 3 + k;
    want.push_back(TextOf(server_->Post("/v1/chat/completions", Chat(one))));
  }
  Json body = hot;
  body["n"] = 3;
  const Json three = server_->Post("/v1/chat/completions", Chat(body)).json();
  ASSERT_EQ(three["choices"].size(), 3u);
  for (size_t k = 0; k < 3; ++k) EXPECT_EQ(three["choices"][k]["message"]["content"], want[k]) << k;
  const Json one = server_->Post("/v1/chat/completions", Chat(hot)).json();
  EXPECT_EQ(three["usage"]["prompt_tokens"], one["usage"]["prompt_tokens"]);
  EXPECT_EQ(three["usage"]["completion_tokens"], 48);
  body["stream"] = true;
  const HttpAnswer streamed = server_->Post("/v1/chat/completions", Chat(body));
  for (size_t k = 0; k < 3; ++k) EXPECT_EQ(StreamText(streamed, k), want[k]) << k;
  // Of several prompts: all answers to the first one come first.
  const Json text = {{"prompt", {"the man", "a sea of"}},
                     {"n", 2},
                     {"echo", true},
                     {"seed", 3},
                     {"temperature", 1.5},
                     {"max_tokens", 8},
                     {"ignore_eos", true}};
  const Json four = server_->Post("/v1/completions", text).json();
  ASSERT_EQ(four["choices"].size(), 4u);
  for (size_t k = 0; k < 4; ++k) {
    EXPECT_EQ(four["choices"][k]["text"].get<std::string>().rfind(k < 2 ? "the man" : "a sea of", 0), 0u) << k;
  }
  EXPECT_NE(four["choices"][0]["text"], four["choices"][1]["text"]);
}

TEST_F(OpenAiOptionsTest, BiasesAndPenalties) {
  const Json plain = Chat({{"logprobs", true}, {"max_tokens", 24}});
  const auto tokens = [&](const Json& more) {
    Json body = plain;
    body.update(more);
    const HttpAnswer answer = server_->Post("/v1/chat/completions", body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    std::vector<std::string> out;
    const Json json = answer.json();
    for (const Json& token : json["choices"][0]["logprobs"]["content"]) out.push_back(token["token"]);
    return out;
  };
  const std::vector<std::string> free = tokens(Json::object());
  const Json ids = server_->Post("/tokenize", {{"content", "man"}}).json()["tokens"];
  const std::string man = server_->Post("/detokenize", {{"tokens", {ids[0]}}}).json()["content"];
  const std::vector<std::string> pushed = tokens({{"logit_bias", {{std::to_string(ids[0].get<int>()), 100}}}});
  EXPECT_EQ(pushed, std::vector<std::string>(24, man));
  EXPECT_NE(free, pushed);
  // A penalty outweighs the bias when the token has been said often enough, and only then.
  const std::vector<std::string> tired =
      tokens({{"logit_bias", {{std::to_string(ids[0].get<int>()), 20}}}, {"frequency_penalty", 2}});
  EXPECT_EQ(tired[0], man);
  EXPECT_LT(std::count(tired.begin(), tired.end(), man), 24);
  EXPECT_LT(std::set<std::string>(pushed.begin(), pushed.end()).size(),
            std::set<std::string>(tired.begin(), tired.end()).size());
  // What is told of a token is the model's own likelihood, whatever was asked of it.
  const auto first = [&](const Json& more) {
    Json body = Chat({{"logprobs", true}, {"top_logprobs", 2}, {"max_tokens", 1}});
    body.update(more);
    const Json json = server_->Post("/v1/chat/completions", body).json();
    return json["choices"][0]["logprobs"]["content"][0]["top_logprobs"];
  };
  EXPECT_EQ(first(Json::object()), first({{"logit_bias", {{std::to_string(ids[0].get<int>()), 50}}}}));
}

TEST_F(OpenAiOptionsTest, TimesAreTold) {
  const Json whole = server_->Post("/v1/chat/completions", Chat()).json();
  EXPECT_EQ(whole["timings"]["prompt_n"].get<int>() + whole["timings"]["cache_n"].get<int>(),
            whole["usage"]["prompt_tokens"]);
  EXPECT_EQ(whole["timings"]["predicted_n"], 12);
  EXPECT_GT(whole["timings"]["prompt_ms"].get<double>(), 0);
  EXPECT_GT(whole["timings"]["predicted_per_second"].get<double>(), 0);
  const auto events = server_->Post("/v1/chat/completions", Chat({{"stream", true}})).events();
  EXPECT_EQ(events.back()["timings"]["predicted_n"], 12);
}

TEST_F(OpenAiOptionsTest, WhatOtherServersServeIsRefusedInWords) {
  const HttpAnswer embeddings = server_->Post("/v1/embeddings", {{"input", "a"}});
  EXPECT_EQ(embeddings.status, 404);
  EXPECT_NE(embeddings.json()["error"]["message"].get<std::string>().find("embeddings"), std::string::npos);
  EXPECT_NE(server_->Get("/slots").json()["error"]["message"].get<std::string>().find("/v1/sessions"),
            std::string::npos);
}

}  // namespace
}  // namespace weir::testing
