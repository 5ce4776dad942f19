#include "text/pretokenizer.h"

#include <gtest/gtest.h>

#include <vector>

namespace weir {
namespace {

using Words = std::vector<std::string>;

Words Split(const char* pre, const std::string& text) {
  auto made = PreTokenizer::Create(pre);
  EXPECT_TRUE(made.ok());
  Words words;
  for (size_t pos = 0; pos < text.size();) {
    const size_t n = (*made)->WordBytes(std::string_view(text).substr(pos), false);
    EXPECT_GT(n, 0u);
    words.push_back(text.substr(pos, n));
    pos += n;
  }
  return words;
}

TEST(PreTokenizer, Gpt2) {
  EXPECT_EQ(Split("gpt-2", "We'll  go, 123\n\n now"), (Words{"We", "'ll", " ", " go", ",", " 123", "\n\n", " now"}));
  EXPECT_EQ(Split("gpt-2", "a   "), (Words{"a", "   "}));
  // U+180E is no white space for the models, U+0085 and U+3000 are.
  EXPECT_EQ(Split("gpt-2", "\u180E\u180Ea"), (Words{"\u180E\u180E", "a"}));
  EXPECT_EQ(Split("gpt-2", "\u0085\u3000a"), (Words{"\u0085", "\u3000", "a"}));
}

TEST(PreTokenizer, SmolLmIsolatesDigitsFirst) {
  EXPECT_EQ(Split("smollm", "a 12"), (Words{"a", " ", "1", "2"}));
  // The text ends for the second pass where a digit begins, so all spaces before it stay together.
  EXPECT_EQ(Split("smollm", "a   1  b"), (Words{"a", "   ", "1", " ", " b"}));
  EXPECT_EQ(Split("smollm", "x\u00BDy\u0663"), (Words{"x", "\u00BD", "y", "\u0663"}));
}

TEST(PreTokenizer, Llama3GroupsDigitsAndNewlines) {
  EXPECT_EQ(Split("llama-bpe", "12345 (HI'LL)\r\n\r\n x"), (Words{"123", "45", " (", "HI", "'LL", ")\r\n\r\n", " x"}));
  EXPECT_EQ(Split("llama-bpe", "  \n  x"), (Words{"  \n", " ", " x"}));
  EXPECT_EQ(Split("llama3", "#tag"), Split("llama-bpe", "#tag"));
}

TEST(PreTokenizer, Qwen2TakesDigitsOneByOne) { EXPECT_EQ(Split("qwen2", "v12!\n"), (Words{"v", "1", "2", "!\n"})); }

TEST(PreTokenizer, Gpt4oEndsWordsAtCapitals) {
  EXPECT_EQ(Split("gpt-4o", "camelCaseWords HTMLParser it'S 12345"),
            (Words{"camel", "Case", "Words", " HTMLParser", " it'S", " ", "123", "45"}));
  EXPECT_EQ(Split("gpt-4o", "don't  stop\n\n //a/b\n"), (Words{"don't", " ", " stop", "\n\n", " //", "a", "/b", "\n"}));
  EXPECT_EQ(Split("gpt-4o", "(a)/\r\n b"), (Words{"(a", ")/\r\n", " b"}));
  EXPECT_EQ(Split("gpt-4o", "\u00DCn\u00EFcode \u65E5\u672C e\u0301a"),
            (Words{"\u00DCn\u00EFcode", " \u65E5\u672C", " e\u0301a"}));
}

TEST(PreTokenizer, GptNeoxIsGpt2) {
  const char* text = "We'll  go, 123\n\n now";
  EXPECT_EQ(Split("olmo", text), Split("gpt-2", text));
  EXPECT_EQ(Split("mpt", text), Split("gpt-2", text));
}

TEST(PreTokenizer, DefaultIsolatesPunctuationAndTakesDigitsByThree) {
  EXPECT_EQ(Split("default", "it's 1234 ok"), (Words{"it", "'", "s", " ", "123", "4", " ok"}));
  EXPECT_EQ(Split("default", "a  .b"), (Words{"a", "  ", ".", "b"}));
  EXPECT_EQ(Split("default", "a  12"), (Words{"a", " ", " ", "12"}));
  EXPECT_EQ(Split("default", "\u0663123"), (Words{"\u0663", "123"}));
  EXPECT_EQ(Split("default", "x \u00A9."), (Words{"x", " \u00A9", "."}));
}

TEST(PreTokenizer, WaitsForWhatCouldChangeAWord) {
  auto gpt2 = PreTokenizer::Create("gpt-2");
  ASSERT_TRUE(gpt2.ok());
  EXPECT_EQ((*gpt2)->WordBytes("hello", true), 0u);
  EXPECT_EQ((*gpt2)->WordBytes("hello ", true), 5u);
  EXPECT_EQ((*gpt2)->WordBytes("'r", true), 0u);  // might become 're
  EXPECT_EQ((*gpt2)->WordBytes("'re", true), 3u);
  EXPECT_EQ((*gpt2)->WordBytes("  ", true), 0u);
  EXPECT_EQ((*gpt2)->WordBytes("  x", true), 1u);
  EXPECT_EQ((*gpt2)->WordBytes("", false), 0u);
}

TEST(PreTokenizer, CutsWordsWithoutEnd) {
  for (const char* pre : {"gpt-2", "llama-bpe", "qwen2", "smollm", "gpt-4o", "default"}) {
    auto made = PreTokenizer::Create(pre);
    ASSERT_TRUE(made.ok());
    for (const char* unit : {"a", " ", "\n", "-", "\xE4\xB8\x96", "\xF0\x9F\xA6\x99"}) {
      std::string text;
      while (text.size() < 3 * kMaxWordBytes) text += unit;
      const size_t n = (*made)->WordBytes(text, false);
      EXPECT_LE(n, kMaxWordBytes);
      EXPECT_GT(n, kMaxWordBytes - 4) << pre << " '" << unit << "'";
      EXPECT_EQ(n % std::string_view(unit).size(), 0u);
      EXPECT_EQ((*made)->WordBytes(text, true), n);
    }
  }
}

TEST(PreTokenizer, NamesWhatItDoesNotKnow) {
  const auto made = PreTokenizer::Create("tekken");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(made.status().message().find("'tekken'"), std::string::npos);
  EXPECT_NE(made.status().message().find("smollm"), std::string::npos);
}

}  // namespace
}  // namespace weir
