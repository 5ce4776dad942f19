// SPDX-License-Identifier: Apache-2.0
// Tools and thoughts in the other APIs' words, with a model that says what a test needs.
#include <gtest/gtest.h>

#include "cli/process.h"
#include "serve/scripted_model.h"
#include "serve/server_process.h"

namespace weir::testing {
namespace {

constexpr const char* kJinja =
    "{# <tool_call> </tool_call> <think> </think> #}{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}{{ m.role }}:{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
    "({{ c.function.name }} {{ c.function.arguments.city }} {{ c.id }}){% endfor %}"
    "{% if m.role == 'tool' %} for {{ m.tool_call_id }}{% endif %};{% endfor %}>{{ messages[-1].content }}";

class ApisToolsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    const std::string bytes = ScriptedModel({{'1',
                                              {{"Let me see.\n"},
                                               {"<tool_call>", true},
                                               {"\n{\"name\": \"get_weather\", \"arguments\": "},
                                               {"{\"city\": \"Par"},
                                               {"is\"}"},
                                               {"}\n"},
                                               {"</tool_call>", true}}},
                                             {'2', {{"<think>\nHm."}, {" So.\n</think>\n\n"}, {"It is sunny."}}}},
                                            kJinja);
    server_ = new ServerProcess({"--pot", "1024"}, dir_->Write("scripted.gguf", bytes));
  }
  static void TearDownTestSuite() {
    delete server_;
    delete dir_;
  }
  static Json Post(const std::string& path, const Json& body) {
    const HttpAnswer answer = server_->Post(path, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
  static Json Says(const std::string& text) { return Json::array({{{"role", "user"}, {"content", text}}}); }
  static inline TempDir* dir_ = nullptr;
  static inline ServerProcess* server_ = nullptr;
};

const Json kSchema = {{"type", "object"}, {"properties", {{"city", {{"type", "string"}}}}}};
const Json kOptions = {{"temperature", 0}, {"num_predict", 40}};

TEST_F(ApisToolsTest, Anthropic) {
  const Json tools = Json::array({{{"name", "get_weather"}, {"description", "Says it."}, {"input_schema", kSchema}}});
  Json body = {{"max_tokens", 40}, {"temperature", 0}, {"tools", tools}, {"messages", Says("1")}};
  const Json answer = Post("/v1/messages", body);
  EXPECT_EQ(answer["stop_reason"], "tool_use");
  ASSERT_EQ(answer["content"].size(), 2u) << answer.dump();
  EXPECT_EQ(answer["content"][0], (Json{{"type", "text"}, {"text", "Let me see."}}));
  const Json use = answer["content"][1];
  EXPECT_EQ(use["type"], "tool_use");
  EXPECT_EQ(use["name"], "get_weather");
  EXPECT_EQ(use["input"], (Json{{"city", "Paris"}}));
  // What the tool said goes back, and the model's thoughts are a block of their own.
  body["messages"].push_back({{"role", "assistant"}, {"content", answer["content"]}});
  body["messages"].push_back(
      {{"role", "user"}, {"content", {{{"type", "tool_result"}, {"tool_use_id", use["id"]}, {"content", "2"}}}}});
  const Json next = Post("/v1/messages", body);
  EXPECT_EQ(next["stop_reason"], "end_turn");
  ASSERT_EQ(next["content"].size(), 2u) << next.dump();
  EXPECT_EQ(next["content"][0]["thinking"], "Hm. So.");
  EXPECT_EQ(next["content"][1]["text"], "It is sunny.");
  // As a stream: the arguments come in pieces.
  body["messages"] = Says("1");
  body["stream"] = true;
  const std::string events = server_->Post("/v1/messages", body).body;
  EXPECT_NE(events.find("\"type\":\"tool_use\""), std::string::npos) << events;
  EXPECT_NE(events.find("input_json_delta"), std::string::npos) << events;
  EXPECT_NE(events.find("\"stop_reason\":\"tool_use\""), std::string::npos) << events;
}

TEST_F(ApisToolsTest, Ollama) {
  const Json tools =
      Json::array({{{"type", "function"}, {"function", {{"name", "get_weather"}, {"parameters", kSchema}}}}});
  Json body = {{"options", kOptions}, {"tools", tools}, {"stream", false}, {"messages", Says("1")}};
  const Json message = Post("/api/chat", body)["message"];
  EXPECT_EQ(message["content"], "Let me see.");
  ASSERT_EQ(message["tool_calls"].size(), 1u) << message.dump();
  EXPECT_EQ(message["tool_calls"][0]["function"], (Json{{"name", "get_weather"}, {"arguments", {{"city", "Paris"}}}}));
  body["messages"].push_back(message);
  body["messages"].push_back({{"role", "tool"}, {"tool_name", "get_weather"}, {"content", "2"}});
  const Json next = Post("/api/chat", body)["message"];
  EXPECT_EQ(next["thinking"], "Hm. So.");
  EXPECT_EQ(next["content"], "It is sunny.");
}

TEST_F(ApisToolsTest, Responses) {
  const Json tools = Json::array({{{"type", "function"}, {"name", "get_weather"}, {"parameters", kSchema}}});
  Json body = {{"max_output_tokens", 40}, {"temperature", 0}, {"tools", tools}, {"input", Says("1")}};
  const Json answer = Post("/v1/responses", body);
  EXPECT_EQ(answer["store"], false);  // sessions have no place for calls
  ASSERT_EQ(answer["output"].size(), 2u) << answer.dump();
  const Json call = answer["output"][1];
  EXPECT_EQ(call["type"], "function_call");
  EXPECT_EQ(call["name"], "get_weather");
  EXPECT_EQ(call["arguments"], "{\"city\": \"Paris\"}");
  for (const Json& item : answer["output"]) body["input"].push_back(item);
  body["input"].push_back({{"type", "function_call_output"}, {"call_id", call["call_id"]}, {"output", "2"}});
  const Json next = Post("/v1/responses", body);
  ASSERT_EQ(next["output"].size(), 2u) << next.dump();
  EXPECT_EQ(next["output"][0]["type"], "reasoning");
  EXPECT_EQ(next["output"][0]["content"][0]["text"], "Hm. So.");
  EXPECT_EQ(next["output"][1]["content"][0]["text"], "It is sunny.");
  body["store"] = true;
  const HttpAnswer refused = server_->Post("/v1/responses", body);
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("'store'"), std::string::npos) << refused.body;
  body["store"] = false;
  body["stream"] = true;
  const std::string events = server_->Post("/v1/responses", body).body;
  EXPECT_NE(events.find("response.reasoning_text.delta"), std::string::npos) << events;
  body["input"] = Says("1");
  EXPECT_NE(server_->Post("/v1/responses", body).body.find("response.function_call_arguments.done"), std::string::npos);
}

}  // namespace
}  // namespace weir::testing
