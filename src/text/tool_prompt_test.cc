// SPDX-License-Identifier: Apache-2.0
#include "text/tool_prompt.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/dialects/dialect.h"

namespace weir {
namespace {

const Json kTools = Json::parse(R"([{"type":"function","function":{"name":"now"}},{"name":"bare"}])");

TEST(ToolPrompt, DescribesToolsAndHowToCallThem) {
  const std::string free = DescribeTools(kTools, /*must=*/false, /*one=*/false);
  EXPECT_NE(free.find("<tools>\n{\"name\":\"now\"}\n{\"name\":\"bare\"}\n</tools>\n"), std::string::npos) << free;
  EXPECT_TRUE(free.ends_with("</tool_call>\nIf no tool helps, answer in plain words.")) << free;
  EXPECT_TRUE(DescribeTools(kTools, true, true).ends_with("Call one tool at a time. Answer with a call."));
  EXPECT_NE(DescribeTools(Json::array(), false, false).find("<tools>\n</tools>"), std::string::npos);
}

// A form that shows no system text, no calls and no results: all of it goes into contents.
TEST(ToolPrompt, SystemTextGoesWhereItIsShown) {
  const AnswerForm form(DialectOf(""), ThoughtMarks{});
  ASSERT_FALSE(form.shows_calls());
  std::vector<ChatMessage> messages = {{"system", "Be kind.", {}}, {"user", "Hi", {}}};
  AddSystemText(form, "Tools.", &messages);
  EXPECT_EQ(messages[0].content, "Tools.\n\nBe kind.");
  messages = {{"system", "", {}}, {"user", "Hi", {}}};
  AddSystemText(form, "Tools.", &messages);
  EXPECT_EQ(messages[0].content, "Tools.");
  messages = {{"assistant", "Yes?", {}}, {"user", "Hi", {}}};
  AddSystemText(form, "Tools.", &messages);
  if (form.shows_system()) {
    ASSERT_EQ(messages.size(), 3u);
    EXPECT_EQ(messages[0].role + ": " + messages[0].content, "system: Tools.");
  } else {
    ASSERT_EQ(messages.size(), 2u);
    EXPECT_EQ(messages[1].content, "Tools.\n\nHi");
  }
}

TEST(ToolPrompt, CallsAndResultsAreWrittenOut) {
  const AnswerForm form(DialectOf(""), ThoughtMarks{});
  ASSERT_FALSE(form.shows_calls() || form.shows_results());
  const std::string calls =
      R"({"content":null,"name":"n","tool_calls":[{"function":{"name":"now","arguments":"{\"a\": 1}"}},)"
      R"({"function":{"name":"bare","arguments":"not JSON"}},{"function":{"name":"none"}},7]})";
  std::vector<ChatMessage> messages = {{"user", "Hi", {}},           {"assistant", "So:", calls},
                                       {"tool", "12:00", {}},        {"tool", "done", {}},
                                       {"user", "And?", {}},         {"tool", "late", {}},
                                       {"assistant", "", "no JSON"}, {"assistant", "", R"({"name":"n"})"}};
  WriteOutCalls(form, &messages);
  ASSERT_EQ(messages.size(), 7u);
  EXPECT_EQ(messages[1].content,
            "So:\n<tool_call>\n{\"name\":\"now\",\"arguments\":{\"a\":1}}\n</tool_call>\n"
            "<tool_call>\n{\"name\":\"bare\",\"arguments\":\"not JSON\"}\n</tool_call>\n"
            "<tool_call>\n{\"name\":\"none\",\"arguments\":{}}\n</tool_call>\n"
            "<tool_call>\n{\"name\":\"\",\"arguments\":{}}\n</tool_call>");
  EXPECT_EQ(messages[1].more, R"({"name":"n"})");
  EXPECT_EQ(messages[2].role, "user");
  EXPECT_EQ(messages[2].content, "<tool_response>\n12:00\n</tool_response>\n<tool_response>\ndone\n</tool_response>");
  EXPECT_EQ(messages[4].content, "<tool_response>\nlate\n</tool_response>");
  EXPECT_EQ(messages[5].more, "no JSON");
  EXPECT_EQ(messages[6].more, R"({"name":"n"})");
}

}  // namespace
}  // namespace weir
