// SPDX-License-Identifier: Apache-2.0
// A conversation with a session: it reads the template's words exactly once, and an interrupted question leaves its
// turn open.
#include "chat/talk.h"

#include <gtest/gtest.h>

#include "support/loaded.h"

namespace weir {
namespace {

class TalkTest : public testing::TinyLlamaTest {
 protected:
  void SetUp() override {
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec("full")).value();
    options.pot_slots = 256;
    options.chunk_rows = 4;
    session_ = std::move(Session::Make(model_->model(), model_->backend(), options)).value();
    sampler_ = std::move(Sampler::Create({})).value();
    chat_ = std::move(ChatTemplate::FromName("vicuna", "<s>", "</s>")).value();
  }
  std::vector<int32_t> Held() const {
    std::vector<int32_t> out;
    for (const SlotMeta& slot : session_->pot().meta(0)) out.push_back(slot.token_id);
    return out;
  }
  Conversation NewConversation() const { return Conversation(tokenizer(), &*chat_); }

  std::unique_ptr<Session> session_;
  std::optional<Sampler> sampler_;
  std::optional<ChatTemplate> chat_;
};

TEST_F(TalkTest, ReadsATurnOnceHoweverItIsOpened) {
  const std::string question = "the man and the sea, the man and the sea";
  Conversation wanted = NewConversation();
  std::vector<int32_t> tokens = wanted.Begin(std::nullopt);
  for (const std::vector<int32_t>& more : {wanted.TurnHead(), (wanted.TurnOpened(), wanted.Ask(question).tokens)}) {
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  for (const bool opened : {false, true}) {
    for (const bool in_one : {false, true}) {
      session_->Reset();
      Talk talk(*session_, *sampler_, NewConversation());
      ASSERT_TRUE(talk.Read(talk.conversation().Begin(std::nullopt)).ok());
      if (opened) {
        ASSERT_TRUE(talk.OpenTurn().ok() && talk.OpenTurn().ok());
      }
      int64_t n_told = 0;
      TalkReading reading;
      reading.in_one = in_one;
      reading.progress = [&](int64_t n) { n_told = n; };
      ASSERT_TRUE(talk.Ask(question, 4, reading).ok());
      EXPECT_EQ(Held(), tokens);
      EXPECT_EQ(n_told, talk.n_question_tokens());
      EXPECT_FALSE(talk.conversation().turn_open());
    }
  }
}

TEST_F(TalkTest, AQuestionCutShortLeavesItsTurnOpen) {
  Talk talk(*session_, *sampler_, NewConversation());
  ASSERT_TRUE(talk.OpenTurn().ok());
  const int64_t n_before = session_->n_seen();
  std::atomic<bool> stop{false};
  TalkReading reading;
  reading.stop = &stop;
  reading.progress = [&](int64_t) { stop = true; };
  const Status cut = talk.Ask("the man and the sea, the man and the sea", 4, reading);
  EXPECT_EQ(cut.code(), StatusCode::kCancelled);
  EXPECT_EQ(session_->n_seen(), n_before + 4);  // one chunk
  EXPECT_TRUE(talk.conversation().turn_open());
  EXPECT_TRUE(talk.conversation().TurnHead().empty());
}

}  // namespace
}  // namespace weir
