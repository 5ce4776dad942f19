// SPDX-License-Identifier: Apache-2.0
// A server whose model has a draft: chats at once, alone and one after the other get the answers that they get without.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "cli/edited_model.h"
#include "serve/openai_client.h"

namespace weir::testing {
namespace {

const std::string kChat = "/v1/chat/completions";

Json Body(int i) {
  Json body = Chat({{"max_tokens", 20 + 9 * i}});
  body["messages"] = Json::array({{{"role", "user"}, {"content", "the sea and man " + std::to_string(i)}}});
  if (i % 2 == 1) body.update({{"temperature", 0.9}, {"seed", i}});
  return body;
}

std::vector<std::string> AtOnce(const ServerProcess& server, int n) {
  std::vector<std::string> out(static_cast<size_t>(n));
  std::vector<std::thread> clients;
  for (int i = 0; i < n; ++i) {
    clients.emplace_back([&, i] { out[static_cast<size_t>(i)] = TextOf(server.Post(kChat, Body(i))); });
  }
  for (std::thread& client : clients) client.join();
  return out;
}

TEST(DraftServerTest, ChatsGetTheSameAnswers) {
  const std::vector<std::string> common = {"--pot", "96", "--answer-pots", "4"};
  const std::string draft = ModelPath("llama");
  std::vector<std::string> drafting = common;
  drafting.insert(drafting.end(), {"--draft", draft, "--draft-p-min", "0", "--draft-pot", "128"});
  const ServerProcess plain(common), drafted(drafting);
  const std::vector<std::string> wanted = AtOnce(plain, 4);
  for (int round = 0; round < 3; ++round) EXPECT_EQ(AtOnce(drafted, 4), wanted);
  // How often a draft of the model's own size guesses depends on measured times; conformance_read_ahead_test makes it.
  for (int i = 0; i < 4; ++i) EXPECT_EQ(TextOf(drafted.Post(kChat, Body(i))), wanted[static_cast<size_t>(i)]);
}

// The server's draft is left out where a session's policy cannot take guesses back.
TEST(DraftServerTest, SessionsOfEveryPolicy) {
  const ServerProcess server({"--pot", "96", "--draft", ModelPath("llama")});
  for (const char* policy : {"streaming_llm", "h2o"}) {
    const HttpAnswer made = server.Post("/v1/sessions", {{"policy", policy}});
    EXPECT_EQ(made.status / 100, 2) << policy << ": " << made.body;
  }
}

}  // namespace
}  // namespace weir::testing
