// SPDX-License-Identifier: Apache-2.0
// Calls that must be made, and calls that are held to their tools' schemas, in every API's words. The model is random:
// whatever is well-formed in its answers is the form's doing.
#include <gtest/gtest.h>

#include "cli/edited_model.h"
#include "cli/process.h"
#include "serve/server_process.h"

namespace weir::testing {
namespace {

constexpr const char* kJinja =
    "{# <tool_call> </tool_call> #}{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}{{ m.role }}:{{ m.content or '' }};{% endfor %}>";

const Json kWeather = Json::parse(R"({"type":"object","properties":{"city":{"type":"string","maxLength":9},
    "days":{"type":"array","items":{"enum":["today","tomorrow"]},"minItems":1,"maxItems":2},
    "where":{"type":"object","properties":{"lat":{"type":"integer"}},"required":["lat"]}},
    "required":["city","days","where"]})");
const Json kTime = Json::parse(R"({"type":"object","properties":{"zone":{"enum":["UTC","CET"]}},"required":["zone"]})");

Json Tool(const std::string& name, const Json& schema, bool strict = false) {
  Json function = {{"name", name}, {"parameters", schema}};
  if (strict) function["strict"] = true;
  return {{"type", "function"}, {"function", std::move(function)}};
}
const Json kTools = Json::array({Tool("get_weather", kWeather), Tool("get_time", kTime)});

void ExpectArguments(const std::string& name, const Json& arguments) {
  ASSERT_TRUE(arguments.is_object()) << arguments;
  if (name == "get_time") {
    EXPECT_TRUE(arguments["zone"] == "UTC" || arguments["zone"] == "CET") << arguments;
    EXPECT_EQ(arguments.size(), 1u);
    return;
  }
  ASSERT_EQ(name, "get_weather");
  EXPECT_EQ(arguments.size(), 3u) << arguments;
  EXPECT_TRUE(arguments["city"].is_string()) << arguments;
  EXPECT_GE(arguments["days"].size(), 1u) << arguments;
  for (const Json& day : arguments["days"]) EXPECT_TRUE(day == "today" || day == "tomorrow") << arguments;
  EXPECT_TRUE(arguments["where"]["lat"].is_number_integer()) << arguments;
}

class HeldToolsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    EditedModel model("llama");
    model.metadata["tokenizer.chat_template"].v = std::string(kJinja);
    server_ = new ServerProcess({"--pot", "4096"}, dir_->Write("random.gguf", model.Bytes()));
  }
  static void TearDownTestSuite() {
    delete server_;
    delete dir_;
  }
  static Json Ask(int seed, const Json& more) {
    Json body = {{"messages", {{{"role", "user"}, {"content", "the man and the sea"}}}},
                 {"tools", kTools},
                 {"temperature", 1.5},
                 {"top_k", 0},
                 {"top_p", 1},
                 {"min_p", 0},
                 {"seed", seed},
                 {"max_tokens", 1000}};
    body.update(more);
    return body;
  }
  static Json Post(const std::string& path, const Json& body) {
    const HttpAnswer answer = server_->Post(path, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
  static inline TempDir* dir_ = nullptr;
  static inline ServerProcess* server_ = nullptr;
};

TEST_F(HeldToolsTest, RequiredAndNamed) {
  for (int seed = 0; seed < 6; ++seed) {
    for (const Json& more :
         {Json{{"tool_choice", "required"}, {"parallel_tool_calls", false}},
          Json{{"tool_choice", {{"type", "function"}, {"function", {{"name", "get_time"}}}}},
               {"parallel_tool_calls", false}},
          Json{{"tool_choice",
                {{"type", "allowed_tools"}, {"allowed_tools", {{"mode", "required"}, {"tools", {kTools[1]}}}}}},
               {"parallel_tool_calls", false}}}) {
      const Json body = Ask(seed, more);
      const Json choice = Post("/v1/chat/completions", body)["choices"][0];
      EXPECT_EQ(choice["finish_reason"], "tool_calls") << choice;
      ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u) << choice;
      const Json call = choice["message"]["tool_calls"][0]["function"];
      if (more["tool_choice"].is_object()) EXPECT_EQ(call["name"], "get_time");
      ExpectArguments(call["name"], Json::parse(call["arguments"].get<std::string>(), nullptr, false));
      // As a stream, the same.
      Json streamed = body;
      streamed["stream"] = true;
      std::string name, arguments;
      for (const Json& event : server_->Post("/v1/chat/completions", streamed).events()) {
        const Json& delta = event["choices"][0]["delta"];
        if (!delta.contains("tool_calls")) continue;
        const Json& function = delta["tool_calls"][0]["function"];
        name += function.value("name", "");
        arguments += function.value("arguments", "");
      }
      EXPECT_EQ(name, call["name"]);
      EXPECT_EQ(arguments, call["arguments"]);
    }
    // Several at once: as many as the model likes, each well-formed unless the length ends it.
    const Json many = Post("/v1/chat/completions", Ask(seed, {{"tool_choice", "required"}}))["choices"][0];
    const Json calls = many["message"]["tool_calls"];
    ASSERT_GE(calls.size(), 1u) << many;
    const bool cut = many["finish_reason"] == "length";
    for (size_t i = 0; i + cut < calls.size(); ++i) {
      const Json& call = calls[i]["function"];
      ExpectArguments(call["name"], Json::parse(call["arguments"].get<std::string>(), nullptr, false));
    }
  }
}

// The last message begins the answer with the mark of a call.
TEST_F(HeldToolsTest, ACallThatIsBegunIsHeld) {
  for (int seed = 0; seed < 6; ++seed) {
    for (const bool strict : {false, true}) {
      Json body = Ask(seed, {{"parallel_tool_calls", false}});
      body["messages"].push_back({{"role", "assistant"}, {"content", "So. <tool_call>"}});
      if (strict) body["tools"] = Json::array({Tool("get_weather", kWeather, true)});
      const Json choice = Post("/v1/chat/completions", body)["choices"][0];
      ASSERT_EQ(choice["finish_reason"], "tool_calls") << choice;
      const Json call = choice["message"]["tool_calls"][0]["function"];
      ExpectArguments(call["name"], Json::parse(call["arguments"].get<std::string>(), nullptr, false));
    }
  }
  // Free text stays free.
  const Json plain = Post("/v1/chat/completions", Ask(1, {{"max_tokens", 8}}))["choices"][0];
  EXPECT_FALSE(plain["message"]["content"].get<std::string>().empty());
  EXPECT_EQ(plain["finish_reason"], "length");
}

TEST_F(HeldToolsTest, TogetherWithAFormOfTheWords) {
  const Json format = {
      {"response_format",
       {{"type", "json_schema"}, {"json_schema", {{"name", "n"}, {"schema", {{"type", "integer"}, {"minimum", 0}}}}}}}};
  bool called = false, said = false;
  for (int seed = 0; seed < 12; ++seed) {
    const Json choice = Post("/v1/chat/completions", Ask(seed, format))["choices"][0];
    const Json& message = choice["message"];
    if (message.contains("tool_calls")) {
      called = true;
      EXPECT_TRUE(message["content"].is_null() || message["content"] == "") << choice;
    } else {
      said = true;
      EXPECT_TRUE(Json::parse(message["content"].get<std::string>(), nullptr, false).is_number()) << choice;
    }
  }
  EXPECT_TRUE(called && said);
  Json must = format;
  must["tool_choice"] = "required";
  EXPECT_TRUE(Post("/v1/chat/completions", Ask(1, must))["choices"][0]["message"].contains("tool_calls"));
}

TEST_F(HeldToolsTest, Anthropic) {
  Json body = {{"max_tokens", 1000},
               {"temperature", 1},
               {"messages", {{{"role", "user"}, {"content", "the sea"}}}},
               {"tools",
                {{{"name", "get_weather"}, {"input_schema", kWeather}},
                 {{"name", "get_time"}, {"input_schema", kTime}, {"strict", true}}}}};
  for (const Json& choice : {Json{{"type", "any"}, {"disable_parallel_tool_use", true}},
                             Json{{"type", "tool"}, {"name", "get_time"}, {"disable_parallel_tool_use", true}}}) {
    body["tool_choice"] = choice;
    for (int seed = 0; seed < 3; ++seed) {
      body["seed"] = seed;
      const Json answer = Post("/v1/messages", body);
      EXPECT_EQ(answer["stop_reason"], "tool_use") << answer;
      ASSERT_EQ(answer["content"].size(), 1u) << answer;
      if (choice["type"] == "tool") EXPECT_EQ(answer["content"][0]["name"], "get_time");
      ExpectArguments(answer["content"][0]["name"], answer["content"][0]["input"]);
    }
  }
}

TEST_F(HeldToolsTest, Responses) {
  const auto flat = [](const Json& tool) {
    Json out = tool["function"];
    out["type"] = "function";
    out["strict"] = true;
    return out;
  };
  Json body = {{"input", "the sea"},
               {"max_output_tokens", 1000},
               {"parallel_tool_calls", false},
               {"tools", {flat(kTools[0]), flat(kTools[1])}}};
  const Json named = {{"type", "function"}, {"name", "get_time"}};
  for (const Json& choice :
       {Json("required"), named, Json{{"type", "allowed_tools"}, {"mode", "required"}, {"tools", {named}}}}) {
    body["tool_choice"] = choice;
    for (int seed = 0; seed < 3; ++seed) {
      body["seed"] = seed;
      const Json answer = Post("/v1/responses", body);
      ASSERT_EQ(answer["output"].size(), 1u) << answer;
      const Json call = answer["output"][0];
      EXPECT_EQ(call["type"], "function_call") << answer;
      if (choice.is_object()) EXPECT_EQ(call["name"], "get_time");
      ExpectArguments(call["name"], Json::parse(call["arguments"].get<std::string>(), nullptr, false));
    }
  }
}

TEST_F(HeldToolsTest, Ollama) {
  const Json body = {
      {"stream", false},
      {"tools", kTools},
      {"messages", {{{"role", "user"}, {"content", "the sea"}}, {{"role", "assistant"}, {"content", "<tool_call>"}}}},
      {"options", {{"num_predict", 1000}, {"seed", 5}, {"temperature", 1}}}};
  const Json answer = Post("/api/chat", body);
  const Json calls = answer["message"]["tool_calls"];
  ASSERT_GE(calls.size(), 1u) << answer;
  ExpectArguments(calls[0]["function"]["name"], calls[0]["function"]["arguments"]);
}

TEST_F(HeldToolsTest, WhatCannotBeHeld) {
  const Json hard = Json::parse(R"({"type":"object","properties":{"tags":{"type":"array","uniqueItems":true,
      "items":{"type":"string","maxLength":3},"maxItems":3}},"required":["tags"]})");
  Json body = Ask(1, {{"tools", {Tool("f", hard)}}, {"tool_choice", "required"}, {"parallel_tool_calls", false}});
  const Json call = Post("/v1/chat/completions", body)["choices"][0]["message"]["tool_calls"][0]["function"];
  EXPECT_TRUE(Json::parse(call["arguments"].get<std::string>(), nullptr, false)["tags"].is_array()) << call;
  body["tools"] = Json::array({Tool("f", hard, true)});
  const HttpAnswer refused = server_->Post("/v1/chat/completions", body);
  EXPECT_EQ(refused.status, 400);
  EXPECT_TRUE(refused.json()["error"]["message"].get<std::string>().starts_with(
      "'tools' cannot be held to their schemas: the tool 'f' cannot be strict: 'uniqueItems' of the schema at "
      "'#/properties/tags' cannot be held"))
      << refused.body;
}

}  // namespace
}  // namespace weir::testing
