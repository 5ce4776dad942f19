// SPDX-License-Identifier: Apache-2.0
#include "text/pretokenizer.h"
#include "support/build_paths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace weir {
namespace {

nlohmann::json Golden() {
  std::ifstream in(SourceDir() + "/tests/golden/tokenizer/pretokenizer.json");
  return nlohmann::json::parse(in);
}

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

TEST(PreTokenizer, CutsAsThePublishedExpressionsDo) {
  const auto golden = Golden();
  for (const auto& [name, lengths] : golden["lengths"].items()) {
    for (size_t i = 0; i < lengths.size(); ++i) {
      const std::string text = golden["texts"][i];
      Words words;
      size_t pos = 0;
      for (const size_t n : lengths[i]) {
        words.push_back(text.substr(pos, n));
        pos += n;
      }
      EXPECT_EQ(Split(name.c_str(), text), words) << name << " '" << text << "'";
    }
  }
  EXPECT_GE(golden["lengths"].size(), 10u);
}

// The part of a text that a stream has seen either determines a word or does not; it never determines it wrongly.
TEST(PreTokenizer, ABeginningNeverGivesAnotherWord) {
  const auto golden = Golden();
  for (const auto& [name, lengths] : golden["lengths"].items()) {
    auto made = PreTokenizer::Create(name);
    ASSERT_TRUE(made.ok());
    for (size_t i = 0; i < lengths.size(); ++i) {
      const std::string text = golden["texts"][i];
      size_t pos = 0;
      for (const size_t n : lengths[i]) {
        for (size_t end = pos + 1; end < std::min(text.size(), pos + n + 12); ++end) {
          if ((static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) continue;
          const size_t seen = (*made)->WordBytes(std::string_view(text).substr(pos, end - pos), true);
          EXPECT_TRUE(seen == 0 || seen == n)
              << name << " " << seen << " of " << n << " at " << pos << " '" << text << "'";
        }
        pos += n;
      }
    }
  }
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

// GLM-4's published expression (tokenization_chatglm.py) is Llama 3's.
TEST(PreTokenizer, OthersWithTheSameRules) {
  const std::string text = "We'LL take 12345 (na\u00EFve)  \r\n\n x  1 \u4F60\u597D!\n";
  const std::pair<const char*, const char*> same[] = {
      {"glm4", "llama-bpe"}, {"chatglm-bpe", "llama-bpe"}, {"stablelm2", "qwen2"}, {"exaone4", "gpt-2"}};
  for (const auto& [name, rule] : same) {
    EXPECT_EQ(Split(name, text), Split(rule, text)) << name;
    EXPECT_FALSE((*PreTokenizer::Create(name))->whole_word_first()) << name;
    EXPECT_FALSE((*PreTokenizer::Create(name))->add_bos()) << name;
  }
  EXPECT_NE(Split("llama-bpe", text), Split("qwen2", text));
  EXPECT_NE(Split("gpt-2", text), Split("qwen2", text));
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

TEST(PreTokenizer, KimiK2SeparatesChineseCharacters) {
  EXPECT_EQ(Split("kimi-k2", "\u4E2D\u6587a\u4E2D it'S 1234"),
            (Words{"\u4E2D\u6587", "a", "\u4E2D", " it'S", " ", "123", "4"}));
  // Numbers and marks of the script, too; a space goes with no Chinese word, and a slash with no punctuation before it.
  EXPECT_EQ(Split("kimi-k2", "\u4E8C\u3007\u3005 \u4E2Dx"), (Words{"\u4E8C\u3007\u3005", " ", "\u4E2D", "x"}));
  EXPECT_EQ(Split("kimi-k2", "(a)!\n/b HTMLParser"), (Words{"(a", ")!\n", "/b", " HTMLParser"}));
}

TEST(PreTokenizer, TekkenTakesNoContractionsAndDigitsOneByOne) {
  EXPECT_EQ(Split("tekken", "camelCase it'S 12\n"), (Words{"camel", "Case", " it", "'S", " ", "1", "2", "\n"}));
  EXPECT_TRUE((*PreTokenizer::Create("tekken"))->whole_word_first());
  EXPECT_TRUE((*PreTokenizer::Create("tekken"))->add_bos());
}

TEST(PreTokenizer, SeedCoderKeepsNewlinesFromPunctuation) {
  EXPECT_EQ(Split("seed-coder", "f();\n\n12"), (Words{"f", "();", "\n\n", "1", "2"}));
}

TEST(PreTokenizer, DeepSeekLlmKnowsLettersByCase) {
  EXPECT_EQ(Split("deepseek-llm", "na\u00EFve 12\n\n"), (Words{"na", "\u00EF", "ve", " ", "1", "2", "\n", "\n"}));
  // Letters without case take no space, and keep those between them.
  EXPECT_EQ(Split("deepseek-llm", "\u05D0 \u05D1  a"), (Words{"\u05D0 \u05D1", " ", " a"}));
  EXPECT_EQ(Split("deepseek-llm", "\u4E2D \u6587\u3002"), (Words{"\u4E2D", " ", "\u6587", "\u3002"}));
}

TEST(PreTokenizer, DeepSeekCoderJoinsASpaceToLettersAndPunctuation) {
  EXPECT_EQ(Split("deepseek-coder", "a\t!! \u4E2Db"), (Words{"a", "\t!!", " ", "\u4E2D", "b"}));
  EXPECT_EQ(Split("deepseek-coder", "x = 12"), (Words{"x", " = ", "1", "2"}));
}

TEST(PreTokenizer, DeepSeekV3CutsAtDigitsAndCjkFirst) {
  EXPECT_EQ(Split("deepseek-v3", "a  1234"), (Words{"a", "  ", "123", "4"}));
  EXPECT_EQ(Split("deepseek-v3", "a \u4E2D\u30FB\u30A2!\n"), (Words{"a", " ", "\u4E2D", "\u30FB", "\u30A2", "!\n"}));
  EXPECT_EQ(Split("deepseek-v3", "f(x)_name"), (Words{"f", "(x", ")_", "name"}));
}

TEST(PreTokenizer, NamesShareExpressions) {
  const char* text = "We'll  go, 123\n\n HTMLParser";
  const std::pair<const char*, const char*> pairs[] = {{"olmo", "gpt-2"},          {"mpt", "gpt-2"},
                                                       {"mellum", "gpt-2"},        {"trillion", "gpt-2"},
                                                       {"a.x-4.0", "gpt-2"},       {"starcoder", "smollm"},
                                                       {"refact", "smollm"},       {"command-r", "smollm"},
                                                       {"minerva-7b", "smollm"},   {"falcon3", "llama-bpe"},
                                                       {"pixtral", "llama-bpe"},   {"dbrx", "llama-bpe"},
                                                       {"lfm2", "llama-bpe"},      {"falcon-h1", "llama-bpe"},
                                                       {"smaug-bpe", "llama-bpe"}, {"megrez", "qwen2"},
                                                       {"hunyuan", "qwen2"},       {"hunyuan-dense", "deepseek-v3"},
                                                       {"minimax-m2", "gpt-4o"},   {"deepseek-r1-qwen", "qwen2"}};
  for (const auto& [name, same] : pairs) EXPECT_EQ(Split(name, text), Split(same, text)) << name;
  // Phi-4's: Llama 3's expression, but merges alone decide, and no BOS.
  EXPECT_FALSE((*PreTokenizer::Create("dbrx"))->whole_word_first());
  EXPECT_FALSE((*PreTokenizer::Create("dbrx"))->add_bos());
}

TEST(PreTokenizer, DefaultIsolatesPunctuationAndTakesDigitsByThree) {
  EXPECT_EQ(Split("default", "it's 1234 ok"), (Words{"it", "'", "s", " ", "123", "4", " ok"}));
  EXPECT_EQ(Split("default", "a  .b"), (Words{"a", "  ", ".", "b"}));
  EXPECT_EQ(Split("default", "a  12"), (Words{"a", " ", " ", "12"}));
  EXPECT_EQ(Split("default", "\u0663123"), (Words{"\u0663", "123"}));
  EXPECT_EQ(Split("default", "x \u00A9."), (Words{"x", " \u00A9", "."}));
}

TEST(PreTokenizer, FalconIsolatesPunctuationAndGroupsOfThreeDigits) {
  EXPECT_EQ(Split("falcon", "it's 1234 ok 12"), (Words{"it", "'", "s", " ", "123", "4", " ok", " 12"}));
  EXPECT_EQ(Split("falcon", "a  `.b  123\u00B2"), (Words{"a", "  ", "`.", "b", " ", " ", "123", "\u00B2"}));
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
  for (const char* pre : {"gpt-2", "llama-bpe", "qwen2", "qwen35", "smollm", "seed-coder", "gpt-4o", "tekken",
                          "kimi-k2", "falcon", "default", "deepseek-v3", "deepseek-llm", "deepseek-coder"}) {
    auto made = PreTokenizer::Create(pre);
    ASSERT_TRUE(made.ok());
    for (const char* unit : {"a", " ", "\n", "-", "\u0301", "\u05D0", "\u3001", "\xE4\xB8\x96", "\xF0\x9F\xA6\x99"}) {
      // One newline is a word there.
      if (*unit == '\n' && (pre == std::string("deepseek-llm") || pre == std::string("deepseek-coder"))) continue;
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
  const auto made = PreTokenizer::Create("kimi-k9");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(made.status().message().find("'kimi-k9'"), std::string::npos);
  EXPECT_NE(made.status().message().find("smollm"), std::string::npos);
}

}  // namespace
}  // namespace weir
