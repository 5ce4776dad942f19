// SPDX-License-Identifier: Apache-2.0
// Chats and completions as a client of the OpenAI API sends them, and what it reads of the answers.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "serve/server_process.h"

namespace weir::testing {

// One server for all tests of a suite.
class OpenAiTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = new ServerProcess({"--pot", "96", "--answer-pots", "3", "--policy", "streaming_llm"});
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  static inline ServerProcess* server_ = nullptr;
};

inline const Json kHello = Json::array({{{"role", "user"}, {"content", "the man and the sea"}}});

inline Json Chat(const Json& more = Json::object()) {
  Json body = {{"model", "any"}, {"messages", kHello}, {"max_tokens", 12}, {"temperature", 0}, {"ignore_eos", true}};
  body.update(more);
  return body;
}

// Draws among all tokens, where the server's own defaults leave the likeliest.
inline Json Hot(const Json& more = Json::object()) {
  Json body = {{"temperature", 1.5}, {"top_k", 0}, {"top_p", 1}, {"min_p", 0}, {"seed", 3}, {"ignore_eos", true}};
  body.update(more);
  return body;
}

inline std::string TextOf(const HttpAnswer& answer) {
  const Json json = answer.json();
  if (answer.status != 200) return "status " + std::to_string(answer.status) + ": " + answer.body;
  const Json& choice = json["choices"][0];
  return choice.contains("message") ? choice["message"]["content"].get<std::string>()
                                    : choice["text"].get<std::string>();
}

// A few characters from the middle of a text.
inline std::string Middle(const std::string& text) {
  const auto character_at = [&](size_t at) {
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
    return at;
  };
  const size_t begin = character_at(text.size() / 2);
  return text.substr(begin, character_at(begin + 4) - begin);
}

inline std::string StreamText(const HttpAnswer& answer, size_t index = 0) {
  bool done = false;
  std::string text;
  for (const Json& event : answer.events(&done)) {
    for (const Json& choice : event["choices"]) {
      if (choice["index"] != index) continue;
      if (choice.contains("text")) text += choice["text"].get<std::string>();
      if (choice.contains("delta") && choice["delta"].contains("content")) {
        text += choice["delta"]["content"].get<std::string>();
      }
    }
  }
  EXPECT_TRUE(done) << answer.body;
  return text;
}

inline std::string ManyWords(int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += "the man ";
  return out;
}

}  // namespace weir::testing
