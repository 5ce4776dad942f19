// SPDX-License-Identifier: Apache-2.0
#include "recall/sentences.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weir {
namespace {

std::vector<std::string> Sentences(std::string_view text) {
  std::vector<std::string> out = {""};
  for (size_t at = 0; at < text.size(); ++at) {
    out.back() += text[at];
    if (EndsSentence(text, at)) {
      EXPECT_TRUE(MayEndSentence(text[at])) << text << at;
      out.emplace_back();
    }
  }
  return out;
}

using Texts = std::vector<std::string>;

TEST(SentencesTest, MarksEndThemWhereAWordFollows) {
  EXPECT_EQ(Sentences("It rained. Who? \"He!\" 4.5 miles."),
            (Texts{"It rained.", " Who?", " \"He!", "\" 4.5 miles.", ""}));
  EXPECT_EQ(Sentences("昨天下雨。早上"), (Texts{"昨天下雨。", "早上"}));
}

TEST(SentencesTest, TitlesDoNotEndThem) {
  EXPECT_EQ(Sentences("He met Mr. Bennet and Mrs. Long. Then Dr. No left St."),
            (Texts{"He met Mr. Bennet and Mrs. Long.", " Then Dr. No left St."}));
  EXPECT_EQ(Sentences("It was the Hmr. Yes"), (Texts{"It was the Hmr.", " Yes"}));
}

TEST(SentencesTest, ShortLinesAreSentencesAndBrokenProseIsNot) {
  EXPECT_EQ(Sentences("Record\n\nfox: 1\nowl: 2\nelk"), (Texts{"Record\n", "\nfox: 1\n", "owl: 2\n", "elk"}));
  const std::string prose =
      "It is a truth universally acknowledged, that a single man\nin possession of a good fortune, "
      "must be in want of a wife\nwhatever";
  EXPECT_EQ(Sentences(prose), Texts{prose});
  // How long the first line was is not known: the text may begin anywhere.
  EXPECT_EQ(Sentences("of a wife\nwhatever"), Texts{"of a wife\nwhatever"});
}

TEST(SentencesTest, FromBeginningToEnd) {
  const std::string text = "One came. \"Two went.\" Three";
  EXPECT_EQ(SentenceStart(text, 14), 11u);
  EXPECT_EQ(SentenceEnd(text, 14), 21u);
  EXPECT_EQ(SentenceEnd(text, 24), 24u);
  EXPECT_EQ(SentenceStart("no end", 3), 3u);
}

}  // namespace
}  // namespace weir
