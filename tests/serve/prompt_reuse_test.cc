// SPDX-License-Identifier: Apache-2.0
// Prompts with the same prefix as the last one: which part is not read again, and that only the time differs.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "serve/openai_client.h"

namespace weir::testing {
namespace {

const std::string kChat = "/v1/chat/completions", kText = "/v1/completions";

int Cached(const Json& answer) { return answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>(); }
int PromptTokens(const Json& answer) { return answer["usage"]["prompt_tokens"].get<int>(); }
std::string Content(const Json& answer) { return answer["choices"][0]["message"]["content"].get<std::string>(); }

Json Message(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }

// One server that reuses prefixes and one that does not: their answers must not differ.
class PromptReuseTest : public ::testing::Test {
 protected:
  Json Ask(const Json& messages) {
    const HttpAnswer one = reusing_.Post(kChat, Chat({{"messages", messages}})),
                     other = anew_.Post(kChat, Chat({{"messages", messages}}));
    EXPECT_EQ(one.status, 200) << one.body;
    EXPECT_EQ(other.status, 200) << other.body;
    const Json a = one.json(), b = other.json();
    EXPECT_EQ(Content(a), Content(b));
    EXPECT_EQ(a["weir"], b["weir"]);
    EXPECT_EQ(PromptTokens(a), PromptTokens(b));
    EXPECT_EQ(Cached(b), 0);
    EXPECT_EQ(a["timings"]["cache_n"], Cached(a));
    EXPECT_EQ(a["timings"]["prompt_n"], PromptTokens(a) - Cached(a));
    return a;
  }

  // The policy's 32 last rows of a prompt vote: what was read of them is not gone on from, nor is a part of a chunk.
  static constexpr int kReadAgain = 48;
  const ServerProcess reusing_{{"--pot", "2048", "-b", "16"}};
  const ServerProcess anew_{{"--pot", "2048", "-b", "16", "--no-cache-prompt"}};
};

TEST_F(PromptReuseTest, ATurnReadsWhatIsNew) {
  for (const bool has_system : {false, true}) {
    SCOPED_TRACE(has_system);
    Json messages = Json::array();
    if (has_system) messages.push_back(Message("system", ManyWords(6) + "and the sea"));
    int n_before = 0;
    for (int turn = 0; turn < 3; ++turn) {
      messages.push_back(Message("user", "a sea of " + ManyWords(30 + turn)));
      const Json answer = Ask(messages);
      if (turn > 0) EXPECT_GE(Cached(answer) + kReadAgain, n_before) << "turn " << turn;
      n_before = PromptTokens(answer);
      messages.push_back(Message("assistant", Content(answer)));
    }
    // The second question is another one.
    messages[has_system ? 3 : 2]["content"] = "the man and the sea";
    messages.erase(messages.begin() + (has_system ? 4 : 3), messages.end());
    const int n_cached = Cached(Ask(messages));
    EXPECT_LT(n_cached, n_before / 2);
    if (has_system) EXPECT_EQ(Cached(Ask(Json::array({Message("system", "the sea"), Message("user", "man")}))), 0);
  }
  EXPECT_EQ(reusing_.Get("/metrics").body.find("\nweir_tokens_reused_total 0\n"), std::string::npos);
  EXPECT_NE(anew_.Get("/metrics").body.find("\nweir_tokens_reused_total 0\n"), std::string::npos);
}

TEST_F(PromptReuseTest, AnEditedMessageIsReadAnewFromThere) {
  Json messages = Json::array({Message("user", ManyWords(60))});
  const Json first = Ask(messages);
  messages.push_back(Message("assistant", Content(first)));
  messages.push_back(Message("user", "a sea of " + ManyWords(40)));
  EXPECT_GT(Cached(Ask(messages)), 0);
  const int n_unedited = Cached(Ask(messages));
  messages[2]["content"] = "or " + ManyWords(40);
  const int n_edited = Cached(Ask(messages));
  EXPECT_GT(n_edited, 0);
  EXPECT_LT(n_edited, n_unedited);
  messages[0]["content"] = "another " + ManyWords(60);
  EXPECT_EQ(Cached(Ask(messages)), 0);
}

TEST_F(PromptReuseTest, ConversationsThatBeginAlikeKeepTheirPots) {
  Json talks[2];
  int n_before[2] = {};
  for (int turn = 0; turn < 3; ++turn) {
    for (const int who : {0, 1}) {
      Json& messages = talks[who];
      if (turn == 0) messages.push_back(Message("system", "the sea"));
      messages.push_back(Message("user", (who == 0 ? "a sea of " : "of men and ") + ManyWords(60)));
      const Json answer = Ask(messages);
      if (turn > 0) EXPECT_GE(Cached(answer) + kReadAgain, n_before[who]) << "turn " << turn << " of " << who;
      n_before[who] = PromptTokens(answer);
      messages.push_back(Message("assistant", Content(answer)));
    }
  }
}

TEST(PromptReuse, NotFromAPotThatForgot) {
  const ServerProcess server({"--pot", "96", "-b", "8", "--answer-pots", "1"});
  const Json request = {{"prompt", ManyWords(300)}, {"max_tokens", 8}, {"temperature", 0}, {"ignore_eos", true}};
  const HttpAnswer first = server.Post(kText, request), again = server.Post(kText, request);
  EXPECT_EQ(Cached(first.json()), 0);
  EXPECT_EQ(Cached(again.json()), 0);
  EXPECT_GT(again.json()["weir"]["dropped"].get<int>(), 0);
  EXPECT_EQ(TextOf(again), TextOf(first));
}

TEST(PromptReuse, ARequestMaySayNo) {
  const ServerProcess server({"--pot", "1024", "-b", "16", "--answer-pots", "1"});
  std::string text;
  const auto cached = [&](const Json& more) {
    Json request = {{"prompt", ManyWords(60)}, {"max_tokens", 8}, {"temperature", 0}, {"ignore_eos", true}};
    request.update(more);
    const HttpAnswer answer = server.Post(kText, request);
    if (text.empty()) text = TextOf(answer);
    EXPECT_EQ(TextOf(answer), text);
    return Cached(answer.json());
  };
  EXPECT_EQ(cached(Json::object()), 0);
  EXPECT_GT(cached(Json::object()), 0);
  EXPECT_EQ(cached({{"cache_prompt", false}}), 0);
  EXPECT_EQ(cached(Json::object()), 0) << "what such a request read is nobody's to go on from";
  EXPECT_GT(cached(Json::object()), 0);
}

}  // namespace
}  // namespace weir::testing
