// SPDX-License-Identifier: Apache-2.0
// Answers held to a form, over HTTP.
#include <gtest/gtest.h>

#include <regex>
#include <thread>

#include "serve/openai_client.h"

namespace weir::testing {
namespace {

class FormsTest : public OpenAiTest {};

const Json kSchema = Json::parse(R"({"type":"object","properties":{"name":{"type":"string","maxLength":8},
    "tags":{"type":"array","items":{"enum":["x","y"]},"maxItems":2}},"required":["name","tags"],"additionalProperties":false})");

Json Format(const Json& schema) {
  return {{"type", "json_schema"}, {"json_schema", {{"name", "thing"}, {"strict", true}, {"schema", schema}}}};
}

void ExpectThing(const std::string& text) {
  const Json thing = Json::parse(text, nullptr, false);
  ASSERT_TRUE(thing.is_object()) << text;
  ASSERT_TRUE(thing["name"].is_string()) << text;
  ASSERT_TRUE(thing["tags"].is_array()) << text;
  EXPECT_LE(thing["tags"].size(), 2u);
  EXPECT_EQ(thing.size(), 2u);
}

TEST_F(FormsTest, ASchemaIsKept) {
  for (int seed = 0; seed < 5; ++seed) {
    const Json body = Hot({{"messages", kHello},
                           {"max_tokens", 300},
                           {"seed", seed},
                           {"ignore_eos", false},
                           {"response_format", Format(kSchema)}});
    const HttpAnswer answer = server_->Post("/v1/chat/completions", body);
    ExpectThing(TextOf(answer));
    EXPECT_EQ(answer.json()["choices"][0]["finish_reason"], "stop");
    Json streamed = body;
    streamed["stream"] = true;
    EXPECT_EQ(StreamText(server_->Post("/v1/chat/completions", streamed)), TextOf(answer));
  }
  const Json cut = Hot({{"messages", kHello}, {"max_tokens", 3}, {"response_format", Format(kSchema)}});
  EXPECT_EQ(server_->Post("/v1/chat/completions", cut).json()["choices"][0]["finish_reason"], "length");
}

TEST_F(FormsTest, EveryNameOfTheFields) {
  const Json structured = {{"structured_outputs", {{"choice", {"yes", "no"}}}}};
  for (const Json& more :
       {Json{{"choices", {"yes", "no"}}}, Json{{"guided_choice", {"yes", "no"}}}, structured, Json{{"regex", "yes|no"}},
        Json{{"guided_regex", "^(yes|no)$"}}, Json{{"grammar", "root ::= \"yes\" | \"no\""}},
        Json{{"guided_grammar", "root ::= \"yes\" | \"no\""}}}) {
    Json body = Hot({{"prompt", "the man"}, {"max_tokens", 20}});
    body.update(more);
    const std::string text = TextOf(server_->Post("/v1/completions", body));
    EXPECT_TRUE(text == "yes" || text == "no") << more << "\n" << text;
  }
  for (const Json& more : {Json{{"json_schema", kSchema}}, Json{{"guided_json", kSchema.dump()}},
                           Json{{"structured_outputs", {{"json", kSchema}}}}}) {
    Json body = Hot({{"prompt", "the man"}, {"max_tokens", 300}});
    body.update(more);
    ExpectThing(TextOf(server_->Post("/v1/completions", body)));
  }
  const Json object = Hot({{"messages", kHello}, {"max_tokens", 3}, {"response_format", {{"type", "json_object"}}}});
  EXPECT_EQ(TextOf(server_->Post("/v1/chat/completions", object))[0], '{');
  Json text = Chat({{"response_format", {{"type", "text"}}}, {"grammar", ""}});
  EXPECT_EQ(TextOf(server_->Post("/v1/chat/completions", text)), TextOf(server_->Post("/v1/chat/completions", Chat())));
}

TEST_F(FormsTest, WhatCannotBeHeldIsRefusedByName) {
  const HttpAnswer answer =
      server_->Post("/v1/chat/completions",
                    Chat({{"response_format", Format({{"properties", {{"a", {{"not", Json::object()}}}}}})}}));
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.body.find("'not' of the schema at '#/properties/a'"), std::string::npos) << answer.body;
  EXPECT_EQ(server_->Post("/v1/chat/completions", Chat({{"grammar", "root ::= x"}})).status, 400);
  EXPECT_EQ(server_->Post("/v1/chat/completions", Chat({{"regex", "a"}, {"choices", {"b"}}})).status, 400);
}

// In shared passes each answer has its own mask.
TEST_F(FormsTest, AnswersTogetherKeepTheirOwnForms) {
  std::vector<std::string> texts(9);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < texts.size(); ++i) {
    threads.emplace_back([&, i] {
      Json body = Hot({{"prompt", "the man"}, {"max_tokens", 120}, {"seed", i}});
      if (i % 3 == 0) body["regex"] = "[a-f]{40}";
      if (i % 3 == 1) body["regex"] = "([0-9][g-k]){20}";
      if (i % 3 == 2)
        body["json_schema"] = {{"type", "array"}, {"items", {{"type", "boolean"}}}, {"minItems", 9}, {"maxItems", 9}};
      texts[i] = TextOf(server_->Post("/v1/completions", body));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::regex wanted[] = {std::regex("[a-f]{40}"), std::regex("([0-9][g-k]){20}"), std::regex("\\[[\\s\\S]*\\]")};
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_TRUE(std::regex_match(texts[i], wanted[i % 3])) << i << ": " << texts[i];
    if (i % 3 == 2) EXPECT_EQ(Json::parse(texts[i], nullptr, false).size(), 9u) << texts[i];
  }
}

TEST(FormsMemory, IsAPartOfTheServersBudget) {
  const std::vector<std::string> few = {"--pot", "64", "--answer-pots", "1"};
  const auto with = [&](const char* memory) {
    std::vector<std::string> out = few;
    out.insert(out.end(), {"--form-memory", memory});
    return out;
  };
  const Json body = {{"prompt", "the"}, {"max_tokens", 9}, {"regex", "[a-c]{3}"}};
  int64_t used = 0;
  {
    const ServerProcess none(with("0"));
    used = none.Get("/props").json()["used_bytes"];
    const HttpAnswer refused = none.Post("/v1/completions", body);
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(refused.json()["error"]["code"], "unsupported");
    EXPECT_NE(refused.body.find("--form-memory 0"), std::string::npos) << refused.body;
    EXPECT_EQ(none.Post("/v1/completions", {{"prompt", "the"}, {"max_tokens", 2}}).status, 200);
  }
  const ServerProcess server(with("2MiB"));
  // And the vocabulary.
  const int64_t more = server.Get("/props").json()["used_bytes"].get<int64_t>() - used - (2 << 20);
  EXPECT_GT(more, 0);
  EXPECT_LT(more, 1 << 20);
  EXPECT_EQ(TextOf(server.Post("/v1/completions", body)).size(), 3u);
  // More forms than there is room for, one after the other: those that nobody uses make room.
  for (int i = 0; i < 40; ++i) {
    Json other = body;
    other["regex"] = "(" + std::to_string(i) + "|" + std::string(1500, 'a') + ")";
    const HttpAnswer answer = server.Post("/v1/completions", other);
    EXPECT_EQ(answer.status, 200) << i << ": " << answer.body;
  }
  Json large = body;
  large["regex"] = std::string(9000, 'a');
  const HttpAnswer refused = server.Post("/v1/completions", large);
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("the answer's form: the form has 9000 bytes"), std::string::npos) << refused.body;
}

TEST_F(FormsTest, QuestionsToASession) {
  const HttpAnswer made = server_->Post("/v1/sessions", Json::object());
  const std::string id = made.json()["id"];
  const std::string path = "/v1/sessions/" + id;
  ASSERT_EQ(server_->Post(path + "/append", {{"text", "the man and the sea"}}).status, 200);
  const HttpAnswer answer = server_->Post(
      path + "/ask",
      Hot({{"question", "what?"}, {"max_tokens", 40}, {"ignore_eos", false}, {"choices", {"a man", "the sea"}}}));
  const std::string text = TextOf(answer);
  EXPECT_TRUE(text == "a man" || text == "the sea") << answer.body;
  server_->Delete(path);
}

}  // namespace
}  // namespace weir::testing
