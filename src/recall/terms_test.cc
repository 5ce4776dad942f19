// SPDX-License-Identifier: Apache-2.0
// What counts as the same word.
#include "recall/terms.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weir {
namespace {

std::vector<Term> TermsOf(std::string_view text) {
  std::vector<Term> out;
  ForEachTerm(text, [&](Term term) { out.push_back(term); });
  return out;
}

TEST(TermsTest, CaseIsFoldedInEveryAlphabet) {
  for (const auto& [upper, lower] : {std::pair{"NETHERFIELD Park", "netherfield park"},
                                     {"ÉBÈNE ÜBER", "ébène über"},
                                     {"ŁÓDŹ ŠKODA Žižka", "łódź škoda žižka"},
                                     {"ΑΘΗΝΑ", "αθηνα"},
                                     {"МОСКВА Ёж", "москва ёж"}}) {
    EXPECT_EQ(TermsOf(upper), TermsOf(lower)) << upper;
  }
  EXPECT_NE(TermsOf("ébène"), TermsOf("ebene"));
}

TEST(TermsTest, PluralsAndPossessivesAreTheWord) {
  EXPECT_EQ(TermsOf("girls ladies Bennet's Bingley’s carriages'"), TermsOf("girl lady bennet bingley carriage"));
  // What only looks like a plural keeps its end.
  EXPECT_NE(TermsOf("glass"), TermsOf("glas"));
  EXPECT_NE(TermsOf("status"), TermsOf("statu"));
  EXPECT_NE(TermsOf("gas"), TermsOf("ga"));
}

TEST(TermsTest, PunctuationEndsAWordAndIsNone) {
  EXPECT_EQ(TermsOf("\"taken,\" it--_was_: 5,000!"), TermsOf("taken it was 5 000"));
  EXPECT_EQ(TermsOf("«ville» — 2×3…"), TermsOf("ville 2 3"));
  EXPECT_TRUE(TermsOf(" ... '' \t\n— \u3002").empty());
  EXPECT_EQ(TermsOf("don't").size(), 1u);
}

// Without spaces every sign is a word, and so is every pair of neighbours.
TEST(TermsTest, SignsAndTheirPairs) {
  const std::vector<Term> both = TermsOf("水墨");
  ASSERT_EQ(both.size(), 3u);
  EXPECT_EQ(both[0], TermsOf("水")[0]);
  EXPECT_EQ(both[1], TermsOf("墨")[0]);
  EXPECT_EQ(TermsOf("水 墨").size(), 2u);  // no pair across a space
  EXPECT_EQ(TermsOf("山水墨").size(), 5u);
  EXPECT_EQ(TermsOf("ab水").size(), 2u);
  EXPECT_EQ(TermsOf("かな").size(), 3u);
}

TEST(TermsTest, AQuestionSearchesByTheWordsThatSaySomething) {
  EXPECT_EQ(QueryTerms("What does this say about the Bennets, and who told it?"), TermsOf("bennet"));
  EXPECT_EQ(QueryTerms("Where was Netherfield? Netherfield Park!"), TermsOf("netherfield park"));
  EXPECT_TRUE(QueryTerms("what is it").empty());
  EXPECT_TRUE(QueryTerms("").empty());
  std::string many;
  for (int i = 0; i < 500; ++i) many += "word" + std::to_string(i) + "x ";
  const std::vector<Term> terms = QueryTerms(many);
  EXPECT_EQ(terms.size(), kMaxTerms);
  EXPECT_EQ(terms[1], TermsOf("word1x")[0]);  // the first ones
}

// "clip 5" is a name: a 5 elsewhere is not the one that is asked about.
TEST(TermsTest, ANumberAndTheWordBeforeItAreATermOfTheirOwn) {
  EXPECT_EQ(TermsOf("clip 5").size(), 3u);
  EXPECT_EQ(TermsOf("5 clips").size(), 2u);
  EXPECT_EQ(TermsOf("Clip 5:")[2], TermsOf("(clips 5)")[2]);
  EXPECT_NE(TermsOf("clip 5")[2], TermsOf("clip 50")[2]);
  EXPECT_NE(TermsOf("clip 5")[2], TermsOf("film 5")[2]);
  EXPECT_EQ(QueryTerms("In clip 5, what shape was it?"), TermsOf("clip 5 shape"));
  EXPECT_EQ(QueryTerms("What was there in 5?"), TermsOf("5"));  // "in" says nothing
}

TEST(TermsTest, NewWordsAreCountedWithoutPairs) {
  const TermTable asked(TermsOf("In clip 5, what shape was it?"));
  EXPECT_EQ(CountNewWords("In clip 5, what shape was it?", asked), 0);
  EXPECT_EQ(CountNewWords("In clip 6, what shape was it?", asked), 1);
  EXPECT_EQ(CountNewWords("In clip 6, what colour was it?", asked), 2);
}

TEST(TermsTest, TheTableFindsWhatItHoldsAndNothingElse) {
  std::vector<Term> terms;
  for (Term i = 0; i < kMaxTerms; ++i) terms.push_back(7 + i * 4 * kMaxTerms);  // all in one place of the table
  const TermTable table(terms);
  for (size_t i = 0; i < terms.size(); ++i) EXPECT_EQ(table.Find(terms[i]), static_cast<int>(i));
  EXPECT_EQ(table.Find(7 + kMaxTerms * 4 * kMaxTerms), -1);
  EXPECT_EQ(table.Find(8), -1);
  EXPECT_EQ(TermTable({}).Find(0), -1);
  EXPECT_EQ(TermTable({0}).Find(0), 0);
}

}  // namespace
}  // namespace weir
