// SPDX-License-Identifier: Apache-2.0
#include "eval/needle.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

#include "eval/haystack.h"

namespace weir {
namespace {

TEST(HaystackTest, ProseIsEndlessAndTheSameForASeed) {
  Haystack a = Haystack::Prose(5), b = Haystack::Prose(5), c = Haystack::Prose(6);
  const std::string text = a.NextBytes(20000);
  EXPECT_EQ(text, b.NextBytes(20000));
  EXPECT_NE(text, c.NextBytes(20000));
  EXPECT_GE(text.size(), 20000u);
  std::set<std::string> sentences;
  Haystack d = Haystack::Prose(5);
  for (int i = 0; i < 200; ++i) sentences.insert(d.Next());
  EXPECT_GT(sentences.size(), 195u);
}

TEST(HaystackTest, SentencesOfATextJoinToTheText) {
  const std::string text = "One is here. Two?\nThree! Mr. Four, 3.14 and five. The end.";
  Haystack whole = Haystack::Of(text, 0);
  std::string joined;
  for (const char* sentence : {"One is here. ", "Two?\n", "Three! ", "Mr. ", "Four, 3.14 and five. "}) {
    const std::string got = whole.Next();
    EXPECT_EQ(got, sentence);
    joined += got;
  }
  EXPECT_EQ(whole.Next(), "The end.\n\n");
  EXPECT_EQ(whole.Next(), "One is here. ");
  Haystack middle = Haystack::Of(text, 3);
  EXPECT_EQ(middle.Next(), "Two?\n");
  Haystack around = Haystack::Of(text, text.size() + 3);
  EXPECT_EQ(around.Next(), "Two?\n");
}

TEST(HaystackTest, LongSentencesAreCutBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "é";
  Haystack source = Haystack::Of(text, 1);
  std::string joined;
  for (int i = 0; i < 8; ++i) {
    const std::string piece = source.Next();
    ASSERT_FALSE(piece.empty());
    EXPECT_LE(piece.size(), 602u);
    EXPECT_NE(static_cast<unsigned char>(piece[0]) & 0xc0, 0x80);
  }
}

TEST(HideNeedlesTest, BehindThePeriodBeforeTheirPlace) {
  const std::string hay = "Aaa aaa. Bbb bbb. Ccc ccc. Ddd ddd.";
  EXPECT_EQ(HideNeedles(hay, {"N."}, 0.6), "Aaa aaa. Bbb bbb. N. Ccc ccc. Ddd ddd.");
  EXPECT_EQ(HideNeedles(hay, {"N."}, 0), "N. " + hay);
  EXPECT_EQ(HideNeedles(hay, {"N."}, 1), hay + " N.");
  // Several are spread from the depth to the end; bytes 17 and 26 of 35 are just behind the second and third period.
  EXPECT_EQ(HideNeedles(hay, {"N.", "O."}, 0.5), "Aaa aaa. Bbb bbb. N. Ccc ccc. O. Ddd ddd.");
  EXPECT_EQ(HideNeedles("no period", {"N."}, 0.5), "no p N. eriod");
  EXPECT_EQ(HideNeedles("", {"N."}, 0.5), "N.");
  EXPECT_EQ(HideNeedles("éé", {"N"}, 0.3), "N éé");
}

TEST(NeedlesTest, OurOwnHoldWhatTheyAskFor) {
  for (const Needle& needle : DefaultNeedles()) {
    ASSERT_EQ(needle.needles.size(), 1u);
    EXPECT_EQ(needle.needles[0], needle.answer_prefix + needle.answer + ".");
    for (const std::string& part : needle.must_contain) EXPECT_NE(needle.answer.find(part), std::string::npos);
  }
}

TEST(NeedlesTest, Files) {
  const auto good = ParseNeedles(
      R"({"single": [{"needle": "A.", "question": "Q?", "must_contain": ["a"], "answers": ["x"]}],
          "multi": [{"needles": ["A.", "B."], "question": "Q?", "must_contain": ["a", "b"]}]})");
  ASSERT_TRUE(good.ok()) << good.status().message();
  ASSERT_EQ(good->size(), 2u);
  EXPECT_EQ((*good)[0].answer, " x");
  EXPECT_EQ((*good)[1].needles.size(), 2u);
  for (const char* bad :
       {"", "[]", "{}", R"({"single": {}})", R"({"single": [{"needle": "A."}]})",
        R"({"single": [{"needle": "A.", "question": "Q?", "must_contain": []}]})", R"({"single": [7]})",
        R"({"single": [{"needle": "", "question": "Q?", "must_contain": ["a"]}]})",
        R"({"single": [{"needle": "A.", "question": "Q?", "must_contain": ["a", ""]}]})",
        R"({"multi": [{"needles": ["A.", ""], "question": "Q?", "must_contain": ["a"]}]})"}) {
    EXPECT_EQ(ParseNeedles(bad).status().code(), StatusCode::kCorrupt) << bad;
  }
}

TEST(NeedlesTest, ThePublishedFile) {
  const char* data = std::getenv("WEIR_DATA");
  if (data == nullptr) GTEST_SKIP() << "WEIR_DATA is not set: it names the folder of evaluation data";
  std::ifstream file(std::string(data) + "/needle/needles.json");
  if (!file) GTEST_SKIP() << "no needle/needles.json in " << data;
  const auto needles = ParseNeedles(std::string{std::istreambuf_iterator<char>(file), {}});
  ASSERT_TRUE(needles.ok()) << needles.status().message();
  EXPECT_EQ(needles->size(), 2u);
}

}  // namespace
}  // namespace weir
