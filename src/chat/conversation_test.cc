// SPDX-License-Identifier: Apache-2.0
// Rounds follow every template: encoded with the next text, or as separate tokens.
#include "chat/conversation.h"

#include <gtest/gtest.h>

#include "chat/prompt_reader.h"
#include "support/loaded.h"

namespace weir {
namespace {

constexpr const char* kTemplates[] = {"chatml",
                                      "smollm2",
                                      "llama2",
                                      "llama3",
                                      "llama3.1",
                                      "vicuna",
                                      "vicuna-newline",
                                      "mistral-v1",
                                      "mistral-v2",
                                      "mistral-v3",
                                      "mistral-v3-tekken",
                                      "zephyr",
                                      "gemma",
                                      "mistral-v7",
                                      "phi3",
                                      "mistral-v7-tekken",
                                      "phi4",
                                      "phi4-mini",
                                      "deepseek",
                                      "deepseek2",
                                      "deepseek3",
                                      "smolvlm",
                                      "deepseek-r1",
                                      "none"};

class ConversationTest : public testing::TinyLlamaTest {
 protected:
  static ChatTemplate Template(const char* name) {
    return std::move(ChatTemplate::FromName(name, "<s>", "</s>")).value();
  }
  std::vector<int32_t> Encode(const std::vector<TextPiece>& pieces, bool add_special = false) const {
    return tokenizer().EncodePieces(pieces, add_special);
  }
};

std::vector<TextPiece> operator+(std::vector<TextPiece> a, const std::vector<TextPiece>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
std::vector<int32_t> operator+(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// If no separate tokens were requested, a first question equals the template's rendering.
TEST_F(ConversationTest, WhatIsDueIsEncodedWithTheQuestion) {
  for (const char* name : kTemplates) {
    for (const bool has_system : {false, true}) {
      SCOPED_TRACE(std::string(name) + (has_system ? " with a system text" : ""));
      const ChatTemplate chat = Template(name);
      Conversation talk(tokenizer(), &chat);
      std::vector<ChatMessage> messages;
      if (has_system) {
        messages.push_back({"system", "the sea"});
        talk.SetSystem("the sea");
      }
      messages.push_back({"user", "the man"});
      const auto rendered = chat.Render(messages, true);
      ASSERT_TRUE(rendered.ok()) << rendered.status().message();
      EXPECT_EQ(talk.Ask("the man").tokens, Encode(*rendered, !chat.includes_bos()));
      // A text first: the turn's head is encoded with it.
      const std::vector<int32_t> head = talk.TurnHead("the ");
      talk.TurnOpened();
      std::vector<TextPiece> words =
          ChatRounds(chat).System(has_system ? std::optional<std::string>("the sea") : std::nullopt);
      ChatRounds first(chat);
      (void)first.System(has_system ? std::optional<std::string>("the sea") : std::nullopt);
      words = words + first.Turn().before + std::vector<TextPiece>{{"the ", false}};
      EXPECT_EQ(head, Encode(words, !chat.includes_bos()));
      EXPECT_EQ(talk.Ask("man").tokens, Encode(std::vector<TextPiece>{{"man", false}} + ChatRounds(chat).Turn().after));
      // The next round begins with the end of the answer and the head of the turn.
      for (const bool end_token_read : {false, true}) {
        talk.Asked();
        talk.Answered(end_token_read);
        ChatRounds rounds(chat);
        (void)rounds.System(has_system ? std::optional<std::string>("the sea") : std::nullopt);
        (void)rounds.User("the man");
        const std::vector<TextPiece> next = rounds.EndAnswer(end_token_read) + rounds.User("and");
        EXPECT_EQ(talk.Ask("and").tokens, Encode(next));
      }
    }
  }
}

// As separate tokens they are the same words, encoded separately.
TEST_F(ConversationTest, WhatIsAskedForIsEncodedApart) {
  for (const char* name : kTemplates) {
    SCOPED_TRACE(name);
    const ChatTemplate chat = Template(name);
    Conversation talk(tokenizer(), &chat);
    ChatRounds rounds(chat);
    EXPECT_EQ(talk.Begin("the sea"), Encode(rounds.System("the sea"), !chat.includes_bos()));
    const AroundContent around = rounds.Turn();
    EXPECT_EQ(talk.TurnHead(), Encode(around.before));
    const TurnParts asks = AskInTurn(talk, "the man");
    EXPECT_EQ(TokensOf(asks.parts),
              Encode(around.before) + Encode(std::vector<TextPiece>{{"the man", false}} + around.after));
    EXPECT_EQ(TokensOf(asks.parts), TokensOf(AskInTurn(talk, "the man", /*in_one=*/true).parts));
    talk.TurnOpened();
    EXPECT_TRUE(talk.TurnHead().empty());
    talk.TextRead();
    EXPECT_EQ(talk.Ask("the man").tokens, Encode(std::vector<TextPiece>{{"\n\nthe man", false}} + around.after));
  }
}

TEST_F(ConversationTest, WithoutATemplateTheFormIsAll) {
  Conversation plain(tokenizer(), nullptr);
  EXPECT_EQ(plain.Begin("be brief"), Encode({{"be brief\n\n", false}}, true));
  EXPECT_TRUE(plain.TurnHead().empty());
  EXPECT_EQ(plain.Ask("who").tokens, Encode({{"Question: who\nAnswer:", false}}));
  plain.Asked();
  EXPECT_EQ(plain.TurnHead(), Encode({{"\n\n", false}}));
  Conversation exam(tokenizer(), nullptr, {.question = "Question: {question} Answer:", .gap = "\n"});
  EXPECT_EQ(exam.Ask("who").tokens, Encode({{"Question: who Answer:", false}}, true));
  exam.Asked();
  const std::vector<int32_t> end = {tokenizer().eos_id()};
  EXPECT_EQ(exam.Tell("man"), Encode({{" man", false}}) + end);
  EXPECT_EQ(exam.Ask("and").tokens, Encode({{"\nQuestion: and Answer:", false}}));
}

TEST_F(ConversationTest, IsSavedAndRestored) {
  const ChatTemplate chat = Template("llama2");
  Conversation talk(tokenizer(), &chat);
  (void)talk.Begin("the sea");
  talk.Asked();
  talk.Answered(true);
  const auto restored = Conversation::Restore(tokenizer(), &chat, talk.Save());
  ASSERT_TRUE(restored.ok()) << restored.status().message();
  EXPECT_EQ(restored->Save(), talk.Save());
  EXPECT_EQ(restored->TurnHead(), talk.TurnHead());
  EXPECT_EQ(restored->Ask("who").tokens, talk.Ask("who").tokens);
  EXPECT_FALSE(Conversation::Restore(tokenizer(), nullptr, talk.Save()).ok());
}

TEST(QuestionFormTest, EveryPlaceIsFilledAndQuestionsAreLeftAlone) {
  EXPECT_EQ(PutQuestion("{question}: {question}", "who"), "who: who");
  EXPECT_EQ(PutQuestion("say {question}", "{question}"), "say {question}");
  EXPECT_EQ(PutQuestion("nothing", "who"), "nothing");
}

}  // namespace
}  // namespace weir
