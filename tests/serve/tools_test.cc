// SPDX-License-Identifier: Apache-2.0
// Tools, their calls and results, and thoughts, over HTTP, with a model that says what a test needs.
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

class ToolsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    const std::string bytes =
        ScriptedModel({{'1',
                        {{"Let me see.\n"},
                         {"<tool_call>", true},
                         {"\n{\"name\": \"get_weather\", \"arguments\": "},
                         {"{\"city\": \"Par"},
                         {"is\"}"},
                         {"}\n"},
                         {"</tool_call>", true},
                         {"\n<tool_call>{\"name\": \"get_time\", \"arguments\": {}}</tool_call>"}}},
                       {'2', {{"<think>\nHm."}, {" So.\n</think>\n\n"}, {"It is sunny."}}},
                       {'3', {{"No <tool_call> here."}}}},
                      kJinja);
    server_ = new ServerProcess({"--pot", "1024"}, dir_->Write("scripted.gguf", bytes));
  }
  static void TearDownTestSuite() {
    delete server_;
    delete dir_;
  }
  static Json Ask(const std::string& text, const Json& more = Json::object()) {
    Json body = {{"messages", {{{"role", "user"}, {"content", text}}}}, {"temperature", 0}, {"max_tokens", 40}};
    body.update(more);
    return body;
  }
  static inline TempDir* dir_ = nullptr;
  static inline ServerProcess* server_ = nullptr;
};

const Json kTools =
    Json::array({{{"type", "function"},
                  {"function",
                   {{"name", "get_weather"},
                    {"description", "Says the weather."},
                    {"parameters", {{"type", "object"}, {"properties", {{"city", {{"type", "string"}}}}}}}}}},
                 {{"type", "function"}, {"function", {{"name", "get_time"}}}}});

TEST_F(ToolsTest, CallsAreHandedOut) {
  const HttpAnswer answer = server_->Post("/v1/chat/completions", Ask("1", {{"tools", kTools}}));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json choice = answer.json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "Let me see.");
  const Json calls = choice["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2u) << answer.body;
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_EQ(calls[0]["function"], (Json{{"name", "get_weather"}, {"arguments", "{\"city\": \"Paris\"}"}}));
  EXPECT_EQ(calls[1]["function"], (Json{{"name", "get_time"}, {"arguments", "{}"}}));
  EXPECT_EQ(calls[0]["id"].get<std::string>().rfind("call_", 0), 0u);
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);
}

TEST_F(ToolsTest, AStreamSaysTheSame) {
  bool done = false;
  const HttpAnswer answer = server_->Post("/v1/chat/completions", Ask("1", {{"tools", kTools}, {"stream", true}}));
  std::string content, finish;
  std::vector<Json> calls;
  for (const Json& event : answer.events(&done)) {
    const Json& choice = event["choices"][0];
    const Json& delta = choice["delta"];
    if (delta.contains("content")) content += delta["content"].get<std::string>();
    if (!choice["finish_reason"].is_null()) finish = choice["finish_reason"];
    if (!delta.contains("tool_calls")) continue;
    for (const Json& call : delta["tool_calls"]) {
      const size_t index = call["index"];
      if (call.contains("id")) {
        ASSERT_EQ(index, calls.size());
        calls.push_back(call["function"]);
      } else {
        const std::string more = call["function"]["arguments"];
        calls.at(index)["arguments"] = calls.at(index)["arguments"].get<std::string>() + more;
      }
    }
  }
  EXPECT_TRUE(done);
  EXPECT_EQ(finish, "tool_calls");
  EXPECT_EQ(content, "Let me see.");
  ASSERT_EQ(calls.size(), 2u) << answer.body;
  EXPECT_EQ(calls[0], (Json{{"name", "get_weather"}, {"arguments", "{\"city\": \"Paris\"}"}}));
  EXPECT_EQ(calls[1], (Json{{"name", "get_time"}, {"arguments", "{}"}}));
}

TEST_F(ToolsTest, OneCallAtATime) {
  const Json one = server_->Post("/v1/chat/completions", Ask("1", {{"tools", kTools}, {"parallel_tool_calls", false}}))
                       .json()["choices"][0];
  EXPECT_EQ(one["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(one["finish_reason"], "tool_calls");
  const Json cut =
      server_->Post("/v1/chat/completions", Ask("1", {{"tools", kTools}, {"max_tokens", 4}})).json()["choices"][0];
  EXPECT_EQ(cut["finish_reason"], "length");
  EXPECT_EQ(cut["message"]["tool_calls"][0]["function"]["arguments"], "{\"city\": \"Par");
}

TEST_F(ToolsTest, WithoutToolsCallsAreText) {
  for (const Json& more :
       {Json::object(), Json{{"tools", kTools}, {"tool_choice", "none"}}, Json{{"tools", Json::array()}}}) {
    const Json choice = server_->Post("/v1/chat/completions", Ask("1", more)).json()["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "stop");
    EXPECT_FALSE(choice["message"].contains("tool_calls"));
  }
  const Json none = {{"tools", kTools}, {"tool_choice", "none"}};
  const Json text = server_->Post("/v1/chat/completions", Ask("3", none)).json()["choices"][0];
  EXPECT_EQ(text["message"]["content"], "No <tool_call> here.");
  EXPECT_EQ(text["finish_reason"], "stop");
}

TEST_F(ToolsTest, ResultsReachTheTemplate) {
  const Json call = {{"id", "c1"},
                     {"type", "function"},
                     {"function", {{"name", "get_weather"}, {"arguments", "{\"city\": \"Paris\"}"}}}};
  Json body = Ask("", {{"tools", kTools}});
  body["messages"] = Json::array({{{"role", "user"}, {"content", "1"}},
                                  {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {call}}},
                                  {{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "warm 2"}}});
  const HttpAnswer prompt = server_->Post("/apply-template", body);
  EXPECT_NE(prompt.body.find("assistant:(get_weather Paris c1);tool:warm 2 for c1;>warm 2"), std::string::npos)
      << prompt.body;
  EXPECT_NE(prompt.body.find("Says the weather."), std::string::npos);
  const Json message = server_->Post("/v1/chat/completions", body).json()["choices"][0]["message"];
  EXPECT_EQ(message["content"], "It is sunny.");
  EXPECT_EQ(message["reasoning_content"], "Hm. So.");
}

TEST_F(ToolsTest, ThoughtsApartOrNot) {
  Json message = server_->Post("/v1/chat/completions", Ask("2")).json()["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "Hm. So.");
  EXPECT_EQ(message["content"], "It is sunny.");
  message =
      server_->Post("/v1/chat/completions", Ask("2", {{"reasoning_format", "none"}})).json()["choices"][0]["message"];
  EXPECT_EQ(message["content"], "<think>\nHm. So.\n</think>\n\nIt is sunny.");
  EXPECT_FALSE(message.contains("reasoning_content"));
  // A form is for what comes after the thoughts.
  message = server_->Post("/v1/chat/completions", Ask("2", {{"choices", {"It rains.", "It is sunny."}}}))
                .json()["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "Hm. So.");
  EXPECT_EQ(message["content"], "It is sunny.");
  std::string thoughts, content;
  const HttpAnswer stream =
      server_->Post("/v1/chat/completions", Ask("2", {{"stream", true}, {"reasoning_effort", "low"}}));
  for (const Json& event : stream.events()) {
    const Json& delta = event["choices"][0]["delta"];
    thoughts += delta.value("reasoning_content", "");
    content += delta.value("content", "");
  }
  EXPECT_EQ(thoughts, "Hm. So.");
  EXPECT_EQ(content, "It is sunny.");
}

TEST_F(ToolsTest, BadToolsAreRefusedByName) {
  const auto refused = [&](const Json& more, const std::string& name) {
    const HttpAnswer answer = server_->Post("/v1/chat/completions", Ask("1", more));
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_NE(answer.body.find("'" + name + "'"), std::string::npos) << answer.body;
    EXPECT_EQ(answer.json()["error"]["message"].get<std::string>().find('\n'), std::string::npos);
  };
  const auto tool = [](const Json& function) {
    return Json{{"tools", {{{"type", "function"}, {"function", function}}}}};
  };
  refused({{"tools", 7}}, "tools");
  refused({{"tools", {{{"type", "function"}}}}}, "tools[0].function");
  refused({{"tools", {{{"type", "retrieval"}, {"function", {{"name", "f"}}}}}}}, "tools[0].type");
  refused(tool({{"name", "a b"}}), "tools[0].function.name");
  refused(tool({{"name", std::string(129, 'a')}}), "tools[0].function.name");
  refused(tool({{"name", "f"}, {"strict", 1}}), "tools[0].function.strict");
  refused(tool({{"name", "f"}, {"parameters", 7}}), "tools[0].function.parameters");
  refused(tool({{"name", "f"}, {"parameters", {{"x", std::string(70000, 'a')}}}}), "tools[0].function.parameters");
  refused(tool({{"name", "f"}, {"colour", "red"}}), "tools[0].function.colour");
  refused({{"tools", {kTools[1], kTools[1]}}}, "tools");
  refused({{"tools", kTools}, {"tool_choice", "all"}}, "tool_choice");
  refused({{"tool_choice", "required"}}, "tool_choice");
  refused({{"tools", kTools}, {"tool_choice", {{"type", "function"}, {"function", {{"name", "x"}}}}}}, "tool_choice");
  refused({{"tools", kTools}, {"tool_choice", {{"type", "allowed_tools"}}}}, "tool_choice");
  refused({{"tools", kTools}, {"tool_choice", {{"type", "allowed_tools"}, {"allowed_tools", {{"tools", {7}}}}}}},
          "tool_choice");
  refused({{"parallel_tool_calls", 1}}, "parallel_tool_calls");
  refused({{"reasoning_format", "loud"}}, "reasoning_format");
  Json many = Json::array();
  for (int i = 0; i < 1025; ++i) many.push_back(kTools[1]);
  refused({{"tools", many}}, "tools");
  const auto message = [](const Json& more) {
    Json out = {{"role", "assistant"}, {"content", nullptr}};
    out.update(more);
    return Json{{"messages", {{{"role", "user"}, {"content", "1"}}, out}}};
  };
  refused(message({{"tool_calls", 7}}), "messages[1].tool_calls");
  refused(message({{"tool_calls", {{{"id", "a"}}}}}), "messages[1].tool_calls[0].function");
  refused(message({{"tool_calls", {{{"function", {{"name", "f"}, {"arguments", 7}}}}}}}),
          "messages[1].tool_calls[0].function.arguments");
}

}  // namespace
}  // namespace weir::testing
