// SPDX-License-Identifier: Apache-2.0
// What each selector finds in the same stream.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "recall/recall_testing.h"
#include "recall/selectors/selector.h"
#include "recall/spec.h"

namespace weir {
namespace {

using testing::ListedBlocks;

std::vector<Passage> Find(const std::string& spec, ListedBlocks& blocks, const std::string& question,
                          int64_t held_from = INT64_MAX) {
  const RecallSpec parsed = std::move(ParseRecallSpec(spec)).value();
  const RecallQuery query = {.text = question,
                             .held_from = held_from,
                             .n_seen = blocks.seq_end(),
                             .t_now_ms = 0,
                             .answers = parsed.answers(),
                             .most = parsed.n_passages()};
  auto found = parsed.info->make(parsed.options)->Select(query, blocks);
  EXPECT_TRUE(found.ok()) << found.status().message();
  return found.ok() ? *std::move(found) : std::vector<Passage>();
}

void AddFiller(ListedBlocks* blocks, int n) {
  for (int i = 0; i < n; ++i) blocks->Add(" It rained, and nobody went out to the pier.", 10);
}

// Seqs [begin, end) of what was found contain the block's.
bool Has(const std::vector<Passage>& found, int64_t seq) {
  for (const Passage& one : found) {
    if (one.seq <= seq && seq < one.seq_end) return true;
  }
  return false;
}

TEST(WordsTest, TheNewestStatementSupersedesOlderOnes) {
  ListedBlocks blocks;
  AddFiller(&blocks, 3);
  const int64_t older = blocks.seq_end();
  // Said twice in one place: without the rule it would score higher than the newest.
  blocks.Add(" The courier's badge number is 11111. Mind the courier's badge number.", 10);
  AddFiller(&blocks, 5);
  const int64_t newest = blocks.seq_end();
  blocks.Add(" The courier's badge number is 22222.", 10);
  AddFiller(&blocks, 3);
  const std::string question = "What is the courier's badge number?";
  EXPECT_TRUE(Has(Find("words:passages=1", blocks, question), newest));
  EXPECT_FALSE(Has(Find("words:passages=4", blocks, question), older));
  EXPECT_TRUE(Has(Find("words:passages=4,older=1", blocks, question), older));
  // Fewer words are a subject, not a statement: everything about it counts.
  EXPECT_TRUE(Has(Find("words:passages=4", blocks, "the courier?"), older));
}

// However many older passages repeat the words.
TEST(WordsTest, TheNewestStatementIsFoundAmongHundreds) {
  ListedBlocks blocks;
  for (int i = 0; i < 600; ++i) blocks.Add(" Courier badge number, courier badge number: none.", 10);
  AddFiller(&blocks, 2);
  const int64_t newest = blocks.seq_end();
  blocks.Add(" The courier's badge number is 22222.", 10);
  AddFiller(&blocks, 2);
  EXPECT_TRUE(Has(Find("words:passages=1", blocks, "What is the courier's badge number?"), newest));
}

TEST(WordsTest, WhatTheUserSaidIsFoundButNoQuestion) {
  ListedBlocks blocks;
  AddFiller(&blocks, 3);
  const int64_t said = blocks.seq_end();
  blocks.Add(" My harpoon hangs in the attic, behind the red trunk.\nassistant", 10, Role::kQuestion);
  AddFiller(&blocks, 3);
  const int64_t asked = blocks.seq_end();
  blocks.Add(" Where does my harpoon hang?\nassistant", 10, Role::kQuestion);
  AddFiller(&blocks, 3);
  const int64_t told = blocks.seq_end();
  blocks.Add(" Tell me where my harpoon hangs.\nassistant", 10, Role::kQuestion);
  AddFiller(&blocks, 3);
  const int64_t answer = blocks.seq_end();
  blocks.Add(" Your harpoon hangs in the cellar.", 10, Role::kAnswer);
  AddFiller(&blocks, 3);
  for (const char* question : {"Where does my harpoon hang?", "Tell me where my harpoon hangs."}) {
    const std::vector<Passage> found = Find("words:passages=9", blocks, question);
    EXPECT_TRUE(Has(found, said)) << question;
    EXPECT_FALSE(Has(found, asked)) << question;
    EXPECT_FALSE(Has(found, answer)) << question;
    EXPECT_TRUE(Has(Find("words:passages=9,answers=1", blocks, question), answer));
  }
  for (const char* question : {"Where does my harpoon hang?", "Tell me where my harpoon hangs."}) {
    EXPECT_FALSE(Has(Find("words:passages=9", blocks, question), told)) << question;
  }
}

// What the user said in a round may share all its words but the answer with the question.
TEST(WordsTest, AStatementWithOneOtherWordIsNoCopyOfTheQuestion) {
  ListedBlocks blocks;
  AddFiller(&blocks, 3);
  const int64_t said = blocks.seq_end();
  blocks.Add(" My cat is called Tom.", 10, Role::kQuestion);
  AddFiller(&blocks, 3);
  const int64_t asked = blocks.seq_end();
  blocks.Add(" What is my dog called?\nASSISTANT:", 10, Role::kQuestion);
  AddFiller(&blocks, 3);
  const std::vector<Passage> found = Find("words:passages=9", blocks, "What is my cat called?");
  EXPECT_TRUE(Has(found, said));
  EXPECT_FALSE(Has(found, asked));
}

// A film's captions number its clips, and say nothing else. Pictures cannot say the question's other words.
TEST(WordsTest, ANameWithANumberPassesTheGateAlone) {
  ListedBlocks blocks;
  for (int i = 1; i <= 30; ++i) {
    blocks.Add(" Clip " + std::to_string(i) + ":", 10);
    blocks.AddPicture(16);
    blocks.Add(" How many are there?", 10, Role::kQuestion);
    blocks.Add(" 5", 1);
  }
  const std::string spec = "words";
  const std::vector<Passage> found = Find(spec, blocks, "In clip 7, what colour was the square?");
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].seq, 6 * 37);
  EXPECT_GT(found[0].score, std::move(ParseRecallSpec(spec)).value().gate());
  // A number that no clip has is no name.
  for (const Passage& one : Find(spec, blocks, "In clip 31, what colour was the square?")) EXPECT_LT(one.score, 0.1);
}

TEST(WordsTest, WhatThePotHoldsIsMarked) {
  ListedBlocks blocks;
  AddFiller(&blocks, 2);
  blocks.Add(" The harpoon lay in the attic.", 10);
  AddFiller(&blocks, 2);
  const std::vector<Passage> away = Find("words:passages=1", blocks, "the harpoon?"),
                             held = Find("words:passages=1", blocks, "the harpoon?", 10);
  ASSERT_EQ(away.size(), 1u);
  EXPECT_FALSE(away[0].held);
  ASSERT_EQ(held.size(), 1u);
  EXPECT_TRUE(held[0].held);
  EXPECT_TRUE(Find("words", blocks, "what is it?").empty());
  EXPECT_TRUE(Find("words", blocks, "the zeppelin?").empty());
}

TEST(BaselinesTest, LastAndRandomTakeWhatLeftThePot) {
  ListedBlocks blocks;
  AddFiller(&blocks, 20);
  const std::vector<Passage> last = Find("last:passages=3", blocks, "anything?", 150);
  ASSERT_EQ(last.size(), 3u);
  EXPECT_EQ(last[0].seq_end, 150);
  EXPECT_EQ(last[2].seq, 120);
  const std::vector<Passage> some = Find("random:passages=5", blocks, "anything?", 150),
                             again = Find("random:passages=5", blocks, "else?", 150),
                             others = Find("random:passages=5,seed=7", blocks, "anything?", 150);
  ASSERT_EQ(some.size(), 5u);
  bool differs = false;
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_LE(some[i].seq_end, 150);
    EXPECT_EQ(some[i].seq, again[i].seq);
    differs |= some[i].seq != others[i].seq;
  }
  EXPECT_TRUE(differs);
}

TEST(TimeTest, AMomentIsSpreadEvenlyOver) {
  ListedBlocks blocks;
  AddFiller(&blocks, 100);
  const std::vector<Passage> beginning = Find("time:passages=2", blocks, "What happens at the beginning?"),
                             at = Find("time:passages=1", blocks, "What is said at 50 %?");
  ASSERT_EQ(beginning.size(), 2u);
  EXPECT_EQ(beginning[0].seq, 0);
  EXPECT_LT(beginning[1].seq, 30);
  ASSERT_EQ(at.size(), 1u);
  EXPECT_NEAR(static_cast<double>(at[0].seq), 495, 15);
  EXPECT_TRUE(Find("time", blocks, "What is the courier's badge number?").empty());
}

// In a long stream the question's words meet by chance, in sentences that say something else.
TEST(WordsTest, NeighbouringSentencesDoNotSupersedeAStatement) {
  ListedBlocks blocks;
  AddFiller(&blocks, 3);
  const int64_t said = blocks.seq_end();
  blocks.Add(" The butcher's house number is 95602.", 10);
  AddFiller(&blocks, 5);
  blocks.Add(" They went over the house. The butcher's badge", 10);
  blocks.Add(" number is 35176. Nobody asked for the house number, nor for the number of the house.", 10);
  AddFiller(&blocks, 3);
  const std::string question = "The butcher's house number is";
  const std::vector<Passage> found = Find("words:passages=2", blocks, question);
  ASSERT_FALSE(found.empty());
  // It comes first, although the other repeats the words.
  EXPECT_TRUE(Has({found[0]}, said));
  EXPECT_EQ(found[0].score, 1);
  // A statement that goes on in the next block is one.
  const int64_t newest = blocks.seq_end();
  blocks.Add(" It rained. The butcher's new", 10);
  blocks.Add(" house number is 11111.", 10);
  AddFiller(&blocks, 3);
  const std::vector<Passage> again = Find("words:passages=2", blocks, question);
  ASSERT_FALSE(again.empty());
  EXPECT_TRUE(Has({again[0]}, newest));
  EXPECT_FALSE(Has(again, said));
}

TEST(WordsTest, TheWordsOfOneLineGoBeforeThoseOfMany) {
  ListedBlocks blocks;
  blocks.Add("Record\nred-owl: 11\nold-fox: 12\n", 10);
  const int64_t said = blocks.seq_end();
  blocks.Add("late-mill: 1\nquiet-harbor: 17\nodd-elk: 2\n", 10);
  AddFiller(&blocks, 4);
  blocks.Add("Record\nquiet-kettle: 3\nold-harbor: 4\n", 10);
  AddFiller(&blocks, 4);
  const std::vector<Passage> found = Find("words:passages=2", blocks, "quiet-harbor:");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_TRUE(Has({found[0]}, said));
  EXPECT_GT(0.8 * found[0].score, found[1].score);  // the margin leaves the other one out
}

TEST(WordsTest, WhatThePotHoldsSupersedesOlderEquals) {
  ListedBlocks blocks;
  blocks.Add("Record\ntunnel: 11111\nkettle: 7\n", 10);
  AddFiller(&blocks, 4);
  const int64_t newest = blocks.seq_end();
  blocks.Add("anchor: 3\ntunnel: 22222\nowl: 4\n", 10);
  blocks.Add("elk: 5\nfox: 6\n", 10);
  const std::vector<Passage> held = Find("words:passages=2", blocks, "tunnel:", newest - 10);
  ASSERT_EQ(held.size(), 1u);
  EXPECT_TRUE(held[0].held && Has(held, newest));
  // Nothing of it is in the pot: both, the newest first.
  const std::vector<Passage> both = Find("words:passages=2", blocks, "tunnel:");
  ASSERT_EQ(both.size(), 2u);
  EXPECT_TRUE(Has({both[0]}, newest));
}

TEST(OracleTest, TheBlocksThatAnswer) {
  ListedBlocks blocks;
  AddFiller(&blocks, 3);  // tokens 0 to 30
  blocks.Add(" The courier's badge", 10);
  blocks.Add(" number is 11111.", 10);
  AddFiller(&blocks, 2);
  blocks.AddPicture(16);
  const int64_t last = blocks.seq_end();
  blocks.Add(" It rained.", 10);
  const RecallSpec spec = std::move(ParseRecallSpec("oracle", true)).value();
  const auto selector = spec.info->make(spec.options);
  RecallQuery query = {.text = "Whatever?", .n_seen = blocks.seq_end()};
  // A suite that does not know is told so; a question that nothing answers gets nothing.
  EXPECT_EQ(selector->Select(query, blocks).status().code(), StatusCode::kInvalidArgument);
  query.gold.emplace();
  EXPECT_TRUE(std::move(selector->Select(query, blocks)).value().empty());
  // Two neighbours and one behind a picture: two passages.
  const std::vector<SeqSpan> gold = {{35, 42}, {last + 2, last + 4}};
  query.gold = gold;
  const std::vector<Passage> found = std::move(selector->Select(query, blocks)).value();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].seq, 30);
  EXPECT_EQ(found[0].seq_end, 50);
  EXPECT_EQ(found[0].n_blocks, 2);
  EXPECT_EQ(found[0].n_before, 1);
  EXPECT_EQ(found[1].seq, last);
  EXPECT_EQ(found[1].n_before, 0);
  EXPECT_TRUE(found[0].whole && !found[0].held);
  query.most = 1;
  EXPECT_EQ(std::move(selector->Select(query, blocks)).value().size(), 1u);
}

}  // namespace
}  // namespace weir
