// SPDX-License-Identifier: Apache-2.0
// Merges of drawn vocabularies, against the definition: of all neighbours, the pair of the lowest rank is joined, the
// leftmost among equals, until there is none.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "text/vocab_test_util.h"

namespace weir {
namespace {

using Ids = std::vector<int32_t>;

struct Vocabulary {
  std::vector<std::string> tokens;  // the bytes first
  std::vector<std::pair<std::string, std::string>> merges;

  std::unique_ptr<Tokenizer> Load(const char* pre) const {
    std::vector<std::string> spelled, joined;
    for (const std::string& token : tokens) spelled.push_back(testing::SpellBytes(token));
    for (const auto& [left, right] : merges) joined.push_back(left + " " + right);
    testing::MetadataBuilder b;
    b.Add("tokenizer.ggml.model", "gpt2").Add("tokenizer.ggml.pre", pre).Add("tokenizer.ggml.tokens", spelled);
    b.Add("tokenizer.ggml.token_type", std::vector<int32_t>(tokens.size(), 1)).Add("tokenizer.ggml.merges", joined);
    auto made = testing::LoadFrom(b);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? std::move(made).value() : nullptr;
  }

  Ids Encode(const std::string& word) const {
    std::vector<std::string> parts;
    for (const char c : word) parts.emplace_back(1, c);
    for (bool joined = true; joined;) {
      joined = false;
      for (const auto& [left, right] : merges) {
        for (size_t i = 0; i + 1 < parts.size() && !joined; ++i) {
          if (parts[i] != left || parts[i + 1] != right) continue;
          parts[i] += right;
          parts.erase(parts.begin() + static_cast<int64_t>(i) + 1);
          joined = true;
        }
        if (joined) break;
      }
    }
    Ids out;
    for (const std::string& part : parts) {
      const auto it = std::find(tokens.begin(), tokens.end(), part);
      if (it != tokens.end()) {
        out.push_back(static_cast<int32_t>(it - tokens.begin()));
      } else {  // a pair that is no token: its bytes
        for (const char c : part) out.push_back(static_cast<uint8_t>(c));
      }
    }
    return out;
  }
};

Vocabulary Drawn(Rng* rng) {
  Vocabulary out;
  for (int b = 0; b < 256; ++b) out.tokens.emplace_back(1, static_cast<char>(b));
  std::vector<std::string> symbols = {"a", "b", "c"};
  std::set<std::pair<std::string, std::string>> known;
  while (out.merges.size() < 40) {
    const std::string left = symbols[rng->Below(symbols.size())], right = symbols[rng->Below(symbols.size())];
    if (left.size() + right.size() > 12 || !known.insert({left, right}).second) continue;
    out.merges.emplace_back(left, right);
    const std::string both = left + right;
    if (std::find(symbols.begin(), symbols.end(), both) != symbols.end()) continue;
    symbols.push_back(both);
    if (rng->Below(10) != 0) out.tokens.push_back(both);
  }
  return out;
}

std::string Word(Rng* rng, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += static_cast<char>('a' + rng->Below(3));
  return out;
}

// Short and long words are merged in two ways.
TEST(Bpe, JoinsTheLowestRankFirst) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    const Vocabulary vocabulary = Drawn(&rng);
    const auto tokenizer = vocabulary.Load("gpt-2");
    ASSERT_NE(tokenizer, nullptr);
    for (const size_t n : {1, 2, 5, 17, 39, 40, 41, 42, 64, 150}) {
      const std::string word = Word(&rng, n);
      ASSERT_EQ(tokenizer->Encode(word, {false, false}), vocabulary.Encode(word)) << "seed " << seed << ": " << word;
    }
    for (const std::string& word : {std::string(60, 'a'), std::string(61, 'b')}) {
      ASSERT_EQ(tokenizer->Encode(word, {false, false}), vocabulary.Encode(word)) << "seed " << seed << ": " << word;
    }
  }
}

// Long texts remember words.
TEST(Bpe, AWordIsTheSameWhereverItStands) {
  Rng rng(7);
  const Vocabulary vocabulary = Drawn(&rng);
  const auto tokenizer = vocabulary.Load("gpt-2");
  ASSERT_NE(tokenizer, nullptr);
  std::vector<std::string> words;
  for (int i = 0; i < 300; ++i) words.push_back(Word(&rng, 1 + rng.Below(18)));
  std::string text;
  Ids want;
  while (text.size() < 40'000) {
    const std::string& word = words[rng.Below(words.size())];
    text += word + ".";
    const Ids ids = vocabulary.Encode(word);
    want.insert(want.end(), ids.begin(), ids.end());
    want.push_back('.');
  }
  EXPECT_EQ(tokenizer->Encode(text, {false, false}), want);
}

// Llama 3's words that are tokens are not merged; others are.
TEST(Bpe, WholeWordsComeFirstWhereTheFamilySaysSo) {
  Vocabulary vocabulary;
  for (int b = 0; b < 256; ++b) vocabulary.tokens.emplace_back(1, static_cast<char>(b));
  vocabulary.tokens.insert(vocabulary.tokens.end(), {"ab", "cabcab"});
  vocabulary.merges = {{"a", "b"}};
  const auto merging = vocabulary.Load("gpt-2"), whole = vocabulary.Load("llama-bpe");
  ASSERT_NE(merging, nullptr);
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(merging->Encode("cabcab", {false, false}), (Ids{'c', 256, 'c', 256}));
  EXPECT_EQ(whole->Encode("cabcab", {false, false}), (Ids{257}));
  EXPECT_EQ(whole->Encode("cabcabc", {false, false}), (Ids{'c', 256, 'c', 256, 'c'}));
}

}  // namespace
}  // namespace weir
