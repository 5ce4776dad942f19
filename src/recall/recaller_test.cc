// SPDX-License-Identifier: Apache-2.0
// What is brought back for a question, what is not, and that the session is afterwards as if it had not been.
#include "recall/recaller.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "recall/recall_testing.h"
#include "support/loaded.h"

namespace weir {
namespace {

using testing::ListedBlocks;

class RecallerTest : public testing::TinyLlamaTest {
 protected:
  void SetUp() override {
    for (int i = 0; i < 4; ++i) blocks_.Add(" the man and the sea.");
    blocks_.Add(" The harpoon lay in the attic.");
    for (int i = 0; i < 4; ++i) blocks_.Add(" the sea and the man.");
    blocks_.Add(" A harpoon is long.");
    for (int i = 0; i < 4; ++i) blocks_.Add(" and the boat.");
  }
  std::unique_ptr<Session> MakeSession(int32_t excerpt_slots) {
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec("streaming_llm")).value();
    options.pot_slots = 64;
    options.excerpt_slots = excerpt_slots;
    return std::move(Session::Make(model_->model(), model_->backend(), options)).value();
  }
  // A session that has read everything in the blocks, and so much after it that it has forgotten them.
  std::unique_ptr<Session> Forgetful(int32_t excerpt_slots = 160) {
    auto session = MakeSession(excerpt_slots);
    const std::vector<int32_t> tokens(static_cast<size_t>(blocks_.seq_end() + 200), 5);
    EXPECT_TRUE(session->Append(tokens).ok());
    return session;
  }
  std::unique_ptr<Recaller> Make(const std::string& spec, Recorder* recorder = nullptr) {
    return std::make_unique<Recaller>(std::move(ParseRecallSpec(spec)).value(), blocks_, model_->tokenizer(), recorder);
  }
  static Recalled Bring(Recaller& recaller, Session& session, const std::string& question) {
    Result<Recalled> out = recaller.Bring(session, question, 0);
    EXPECT_TRUE(out.ok()) << out.status().message();
    return out.ok() ? *std::move(out) : Recalled();
  }

  ListedBlocks blocks_;
};

TEST_F(RecallerTest, TheSentenceComesAndGoes) {
  auto session = Forgetful();
  const int32_t n_used = session->pot().n_used();
  const int64_t n_seen = session->n_seen();
  auto recaller = Make("words:passages=1,gate=0");
  const Recalled recalled = Bring(*recaller, *session, "Where is the harpoon in the attic?");
  ASSERT_EQ(recalled.passages.size(), 1u);
  const RecalledPassage& one = recalled.passages[0];
  EXPECT_NE(one.text.find("The harpoon lay in the attic."), std::string::npos) << one.text;
  EXPECT_LE(one.seq, 4 * 32);
  EXPECT_GE(one.seq_end, 5 * 32);
  EXPECT_EQ(one.t_ms, 1000 * one.seq);
  EXPECT_GT(one.score, 0.5);
  EXPECT_EQ(recalled.best_score, one.score);
  EXPECT_FALSE(recalled.gated || recalled.held);
  // On top of the pot, and nothing went for it.
  EXPECT_GT(recalled.n_tokens, 0);
  EXPECT_EQ(session->n_excerpt(), recalled.n_tokens);
  EXPECT_EQ(session->pot().n_used(), n_used + recalled.n_tokens);
  EXPECT_EQ(session->n_seen(), n_seen + recalled.n_tokens);
  // It is read as a quotation.
  std::vector<int32_t> newest;
  for (const SlotMeta& slot : session->pot().meta(0)) {
    if (slot.seq >= n_seen) newest.push_back(slot.token_id);
  }
  EXPECT_NE(model_->tokenizer().Decode(newest).find("[From earlier in the text]\n"), std::string::npos);
  ASSERT_TRUE(recaller->TakeBack(*session).ok());
  EXPECT_EQ(session->n_excerpt(), 0);
  EXPECT_EQ(session->pot().n_used(), n_used);
  ASSERT_TRUE(recaller->TakeBack(*session).ok());  // nothing left to do
  EXPECT_EQ(session->pot().n_used(), n_used);
}

TEST_F(RecallerTest, PassagesComeInTheOrderOfTheStream) {
  auto session = Forgetful();
  auto recaller = Make("words:passages=4,gate=0,margin=0");
  const Recalled recalled = Bring(*recaller, *session, "harpoon");
  ASSERT_GE(recalled.passages.size(), 2u);
  for (size_t i = 1; i < recalled.passages.size(); ++i) {
    EXPECT_GE(recalled.passages[i].seq, recalled.passages[i - 1].seq_end);
  }
}

TEST_F(RecallerTest, WhatMatchesTooLittleStaysAway) {
  auto session = Forgetful();
  const int64_t n_seen = session->n_seen();
  const std::string question = "Who sold the harpoon, the lantern, the compass and the anchor?";
  const Recalled gated = Bring(*Make("words:gate=0.9"), *session, question);
  EXPECT_TRUE(gated.passages.empty());
  EXPECT_TRUE(gated.gated);
  EXPECT_FALSE(gated.held);
  EXPECT_GT(gated.best_score, 0);
  EXPECT_LT(gated.best_score, 0.9);
  EXPECT_EQ(gated.n_tokens, 0);
  EXPECT_EQ(session->n_seen(), n_seen);
  EXPECT_EQ(session->n_excerpt(), 0);
  auto through = Make("words:gate=0");
  EXPECT_FALSE(Bring(*through, *session, question).passages.empty());
  ASSERT_TRUE(through->TakeBack(*session).ok());
  // Nothing at all is something else than too little.
  const Recalled none = Bring(*Make("words:gate=0"), *session, "zeppelin");
  EXPECT_TRUE(none.passages.empty());
  EXPECT_FALSE(none.gated);
  EXPECT_EQ(none.best_score, 0);
}

TEST_F(RecallerTest, TheMarginIsMeasuredFromTheBest) {
  auto session = Forgetful();
  const std::string question = "the harpoon lay in the attic";
  auto all = Make("words:passages=4,gate=0,margin=0");
  const size_t n_all = Bring(*all, *session, question).passages.size();
  ASSERT_GT(n_all, 1u);
  ASSERT_TRUE(all->TakeBack(*session).ok());
  EXPECT_EQ(Bring(*Make("words:passages=4,gate=0,margin=0.9"), *session, question).passages.size(), 1u);
}

TEST_F(RecallerTest, WhatThePotHoldsIsNotBroughtBack) {
  auto session = MakeSession(64);
  // The whole stream is in the pot.
  ASSERT_TRUE(session->Append(std::vector<int32_t>(60, 5)).ok());
  const Recalled recalled = Bring(*Make("words:gate=0"), *session, "Where is the harpoon in the attic?");
  EXPECT_TRUE(recalled.held);
  EXPECT_FALSE(recalled.gated);
  EXPECT_TRUE(recalled.passages.empty());
  EXPECT_GT(recalled.best_score, 0.5);
  EXPECT_EQ(session->n_excerpt(), 0);
}

TEST_F(RecallerTest, WhatDoesNotFitIsLeftOut) {
  std::string pages;
  for (int i = 0; i < 60; ++i) pages += " harpoon attic man";
  blocks_.Add(" and the sea.");
  blocks_.Add(pages);  // the best match, and far too long
  blocks_.Add(" and the sea.");
  auto session = Forgetful(90);
  auto recaller = Make("words:passages=4,gate=0,margin=0");
  const Recalled recalled = Bring(*recaller, *session, "Where in the attic is the harpoon?");
  ASSERT_FALSE(recalled.passages.empty());
  for (const RecalledPassage& one : recalled.passages) EXPECT_LT(one.text.size(), 300u) << one.text;
  EXPECT_LE(recalled.n_tokens, 90);
  EXPECT_EQ(session->n_excerpt(), recalled.n_tokens);
  // Room for nothing at all is no error either.
  auto narrow = Forgetful(2);
  const Recalled nothing = Bring(*Make("words:gate=0"), *narrow, "Where in the attic is the harpoon?");
  EXPECT_TRUE(nothing.passages.empty());
  EXPECT_EQ(narrow->n_excerpt(), 0);
}

TEST_F(RecallerTest, TheNewestWordsAreHandedOverFirst) {
  blocks_ = ListedBlocks();
  Recorder recorder(model_->tokenizer(),
                    [this](const Block& block) { blocks_.Add(std::string(block.text), block.n_tokens); }, {});
  auto session = MakeSession(160);
  session->SetListener(&recorder);
  EncodeOptions plain;
  plain.add_special = false;
  ASSERT_TRUE(session->Append(model_->tokenizer().Encode("the man has a zeppelin", plain)).ok());
  EXPECT_TRUE(blocks_.blocks().empty());  // still with the recorder
  const Recalled recalled = Bring(*Make("words:gate=0", &recorder), *session, "zeppelin?");
  EXPECT_TRUE(recalled.held);
  EXPECT_EQ(blocks_.blocks().size(), 1u);
  session->SetListener(nullptr);
}

TEST_F(RecallerTest, AnExcerptIsNotArchivedAgain) {
  int64_t n_heard = 0;
  struct Counts final : StreamListener {
    int64_t* n = nullptr;
    void Arrived(const Arrival& arrival) override { *n += arrival.n; }
  } counts;
  counts.n = &n_heard;
  auto session = Forgetful();
  session->SetListener(&counts);
  auto recaller = Make("words:gate=0");
  ASSERT_GT(Bring(*recaller, *session, "harpoon attic").n_tokens, 0);
  EXPECT_EQ(n_heard, 0);
  ASSERT_TRUE(session->Append(std::vector<int32_t>(7, 5)).ok());
  EXPECT_EQ(n_heard, 7);
  ASSERT_TRUE(recaller->TakeBack(*session).ok());
  EXPECT_EQ(n_heard, 7);
  session->SetListener(nullptr);
}

TEST_F(RecallerTest, ASourceThatFailsIsAnErrorAndNothingIsRead) {
  auto session = Forgetful();
  const int64_t n_seen = session->n_seen();
  blocks_.fails = true;
  EXPECT_EQ(Make("words:gate=0")->Bring(*session, "harpoon", 0).status().code(), StatusCode::kIo);
  EXPECT_EQ(session->n_seen(), n_seen);
  EXPECT_EQ(session->n_excerpt(), 0);
}

}  // namespace
}  // namespace weir
