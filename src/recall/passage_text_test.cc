// SPDX-License-Identifier: Apache-2.0
// A passage is brought back in whole sentences, and nothing but text around it.
#include "recall/passage_text.h"

#include <gtest/gtest.h>

#include <string>

#include "base/utf8.h"
#include "recall/recall_testing.h"

namespace weir {
namespace {

using testing::ListedBlocks;

// The text of blocks [first, first + n) of a list, with the block before them if there is one.
std::string TextOf(ListedBlocks& blocks, int32_t first, int32_t n) {
  Passage passage;
  passage.n_before = first > 0 ? 1 : 0;
  passage.from = first - passage.n_before;
  passage.n_blocks = n;
  passage.seq = blocks.blocks()[static_cast<size_t>(first)].seq;
  passage.seq_end = blocks.blocks()[static_cast<size_t>(first + n - 1)].seq_end();
  Result<std::string> text = PassageText(passage, blocks);
  EXPECT_TRUE(text.ok());
  if (!text.ok()) return "?";
  EXPECT_EQ(ValidUtf8Prefix(*text), text->size()) << *text;
  return *std::move(text);
}

TEST(PassageTextTest, BackToTheBeginningOfTheSentenceAndOnToItsEnd) {
  ListedBlocks blocks;
  blocks.Add("It rained. In the morning");
  blocks.Add(" the carriage came to");
  blocks.Add(" Netherfield at last. Nobody saw it.");
  EXPECT_EQ(TextOf(blocks, 1, 1), "In the morning the carriage came to Netherfield at last.");
  EXPECT_EQ(TextOf(blocks, 1, 2), "In the morning the carriage came to Netherfield at last. Nobody saw it.");
  // Where no sentence begins or ends in the next block, as it is.
  EXPECT_EQ(TextOf(blocks, 0, 1), "It rained. In the morning");
  EXPECT_EQ(TextOf(blocks, 2, 1), "Netherfield at last. Nobody saw it.");
}

TEST(PassageTextTest, WhatEndsASentence) {
  ListedBlocks blocks;
  const std::string wrapped = "Of the road, which is some 4.5 miles long and badly kept,\n";
  blocks.Add("Heading\n\n" + wrapped);
  blocks.Add("the rest");
  blocks.Add(" is 3.25 long.\" Then");
  EXPECT_EQ(TextOf(blocks, 1, 1), wrapped + "the rest is 3.25 long.\"");
  ListedBlocks asked;
  asked.Add("Who? \"He");
  asked.Add(" came");
  asked.Add("! And");
  EXPECT_EQ(TextOf(asked, 1, 1), "He came!");
}

TEST(PassageTextTest, AShortLineIsASentence) {
  ListedBlocks blocks;
  blocks.Add("Record\nquiet-harbor: 17\nodd");
  blocks.Add("-kettle: 4711\nold-fox: 3\nred");
  blocks.Add("-owl: 8\nlate-mill: 9\n");
  const std::string text = TextOf(blocks, 1, 1);
  EXPECT_EQ(text, "odd-kettle: 4711\nold-fox: 3\nred-owl: 8");
  EXPECT_EQ(AroundBestSentence(text, "old-fox:", 0), "old-fox: 3");
  EXPECT_EQ(AroundBestSentence(text, "old-fox:", 1), text);
}

TEST(PassageTextTest, SentencesOfEastAsiaEndWithoutASpace) {
  ListedBlocks blocks;
  blocks.Add("昨天下雨。早上");
  blocks.Add("马车");
  blocks.Add("来了。没有人");
  EXPECT_EQ(TextOf(blocks, 1, 1), "早上马车来了。");
  ListedBlocks marks;
  marks.Add("何？馬");
  marks.Add("車");
  marks.Add("が！はい");
  EXPECT_EQ(TextOf(marks, 1, 1), "馬車が！");
}

TEST(PassageTextTest, OnlyWordsOfTheInputAreAddedAround) {
  ListedBlocks blocks;
  blocks.Add("the question", 8, Role::kQuestion);
  blocks.Add("an answer", 8, Role::kAnswer);
  blocks.AddPicture(16);
  blocks.Add("what was read", 8);
  blocks.AddPicture(16);
  EXPECT_EQ(TextOf(blocks, 1, 1), "an answer");  // itself, if it was asked for
  EXPECT_EQ(TextOf(blocks, 3, 1), "what was read");
}

TEST(PassageTextTest, NothingElseIsReadInTheirPlace) {
  ListedBlocks blocks;
  for (const char* text : {"One.", " Two.", " Three.", " Four."}) blocks.Add(text);
  ASSERT_EQ(TextOf(blocks, 2, 1), "Three.");
  // The oldest were deleted for the quota: the block before, the passage, both.
  for (const BlockPlace first : {2, 3, 4}) {
    blocks.first = first;
    EXPECT_EQ(TextOf(blocks, 2, 1), "") << first;
    EXPECT_EQ(TextOf(blocks, 1, 2), "") << first;
  }
  // The place is there, and holds something else.
  blocks.first = 0;
  Passage other = {.from = 1, .n_before = 1, .seq = 3 * 32, .seq_end = 4 * 32};
  EXPECT_EQ(*PassageText(other, blocks), "");
  other.from = 2;
  EXPECT_EQ(*PassageText(other, blocks), "Four.");
  other.seq_end += 1;
  EXPECT_EQ(*PassageText(other, blocks), "");
}

TEST(PassageTextTest, ABlockWithoutWordsIsNoPassage) {
  ListedBlocks blocks;
  blocks.Add("Words.");
  blocks.Add("");  // the frame of a chat
  EXPECT_TRUE(*HasPassage({.seq = 0, .seq_end = 32}, blocks));
  EXPECT_FALSE(*HasPassage({.from = 1, .seq = 32, .seq_end = 64}, blocks));
  EXPECT_FALSE(*HasPassage({.n_before = 1, .seq = 32, .seq_end = 64}, blocks));
  EXPECT_TRUE(*HasPassage({.from = 1, .seq = 32, .seq_end = 64, .n_rows = 32}, blocks));
}

TEST(PassageTextTest, WordsAroundADamagedBlockAreNotOneSentence) {
  ListedBlocks blocks;
  for (const char* text : {"Yes. He took the", " coach, and she", " the ship.", " Then they", " met."})
    blocks.Add(text);
  ASSERT_EQ(TextOf(blocks, 1, 1), "He took the coach, and she the ship.");
  blocks.damaged = 2;  // behind it
  EXPECT_EQ(TextOf(blocks, 1, 1), "He took the coach, and she");
  blocks.damaged = 1;
  // Inside: a selector saw it so, too.
  Passage passage = {.from = 0, .n_blocks = 2, .seq = 0, .seq_end = 3 * 32};
  EXPECT_EQ(*PassageText(passage, blocks), "Yes. He took the ...  the ship.");
  // A passage whose neighbour in front is not the one before it.
  passage = {.from = 0, .n_before = 1, .seq = 2 * 32, .seq_end = 3 * 32};
  EXPECT_EQ(*PassageText(passage, blocks), "the ship.");
}

TEST(PassageTextTest, NothingOfATerminalNorEmptyEnds) {
  ListedBlocks blocks;
  blocks.Add(" \n\t one\x1b[2J\r\ntwo\x07 \n ");
  EXPECT_EQ(TextOf(blocks, 0, 1), "one [2J \ntwo");
  blocks = ListedBlocks();
  EXPECT_EQ(*PassageText({}, blocks), "");  // gone
  blocks.Add("a block");
  blocks.fails = true;
  EXPECT_EQ(PassageText({}, blocks).status().code(), StatusCode::kIo);
}

}  // namespace
}  // namespace weir
