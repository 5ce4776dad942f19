// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/utf8.h"
#include "text/stream.h"
#include "text/vocab_test_util.h"

namespace weir {
namespace {

using testing::FromRanks;
using testing::FromVocabJson;
using testing::LoadFrom;
using testing::MetadataBuilder;
using testing::ReadData;

// The vocabularies of the data folder; null (and a reason) when they are missing.
std::unique_ptr<Tokenizer> LoadNamed(const std::string& name) {
  const auto file = [](const std::string& path) { return ReadData("tokenizers/" + path).value_or(""); };
  Result<std::unique_ptr<Tokenizer>> result = NotFound("no such vocabulary");
  if (name == "gpt-2" || name == "llama-spm" || name == "phi-3") {
    const std::string bytes = file("ggml-vocab-" + name + ".gguf");
    if (bytes.empty()) return nullptr;
    const std::vector<uint8_t> copy(bytes.begin(), bytes.end());
    auto gguf = GgufFile::Parse(copy, name);
    EXPECT_TRUE(gguf.ok()) << gguf.status().message();
    if (!gguf.ok()) return nullptr;
    result = Tokenizer::Load(**gguf);
  } else if (name == "llama-bpe") {
    const std::string ranks = file("llama3/tokenizer.model");
    if (ranks.empty()) return nullptr;
    result = LoadFrom(FromRanks(ranks));
  } else {
    const std::string vocab = file(name + "/vocab.json"), merges = file(name + "/merges.txt");
    if (vocab.empty() || merges.empty()) return nullptr;
    result = LoadFrom(FromVocabJson(vocab, merges, name.c_str(), name == "smollm" ? 17 : 0));
  }
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? std::move(result).value() : nullptr;
}

constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};

class Vocabulary : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    tokenizer_ = LoadNamed(GetParam());
    if (!tokenizer_ && !HasFailure()) GTEST_SKIP() << "WEIR_DATA has no vocabulary " << GetParam();
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

class PublishedVectors : public Vocabulary {};

TEST_P(PublishedVectors, GiveTheSameIds) {
  const std::string stem = std::string("tokenizers/ggml-vocab-") + GetParam() + ".gguf";
  const auto inputs = ReadData(stem + ".inp"), outputs = ReadData(stem + ".out");
  if (!inputs || !outputs) GTEST_SKIP() << "WEIR_DATA has no published vectors for " << GetParam();
  const std::string separator = "\n__ggml_vocab_test__\n";
  const std::vector<std::string> lines = testing::Lines(*outputs);
  size_t begin = 0, n = 0;
  while (begin <= inputs->size() && n < lines.size()) {
    const size_t end = std::min(inputs->find(separator, begin), inputs->size());
    const std::string text = inputs->substr(begin, end - begin);
    std::vector<int32_t> expected;
    std::istringstream in(lines[n]);
    for (int32_t id; in >> id;) expected.push_back(id);
    EXPECT_EQ(tokenizer_->Encode(text, kPlain), expected) << "vector " << n << ": '" << text << "'";
    begin = end + separator.size();
    ++n;
  }
  EXPECT_EQ(n, lines.size());
  EXPECT_GE(n, 40u);
}

std::string RandomText(std::mt19937* rng, int n_chars) {
  std::string text;
  for (int i = 0; i < n_chars; ++i) {
    const uint32_t kind = (*rng)() % 10, r = (*rng)();
    if (kind < 4) {
      text += static_cast<char>('a' + r % 26);
    } else if (kind < 6) {
      text += " \n\t 0123456789.,'!s\r "[r % 21];
    } else if (kind < 7) {
      AppendUtf8(0x4E00 + r % 2000, &text);
    } else if (kind < 8) {
      AppendUtf8(0x1F300 + r % 700, &text);
    } else if (kind < 9) {
      AppendUtf8(0xA0 + r % 1000, &text);
    } else {
      AppendUtf8(r % 0x110000, &text);
    }
  }
  return text;
}

TEST_P(Vocabulary, DecodesWhatItEncodes) {
  std::mt19937 rng(7);
  for (int round = 0; round < 200; ++round) {
    const std::string text = RandomText(&rng, 1 + round);
    EncodeReport report;
    const auto ids = tokenizer_->Encode(text, kPlain, &report);
    // A vocabulary without some bytes reports how many were lost; otherwise nothing may change.
    if (report.n_dropped_bytes == 0) {
      ASSERT_EQ(tokenizer_->Decode(ids), text) << "round " << round;
    } else {
      ASSERT_STREQ(GetParam(), "smollm");
    }
    ASSERT_EQ(report.n_replaced, 0);
  }
}

TEST_P(Vocabulary, StreamGivesTheSameIdsHoweverTheTextIsCut) {
  std::mt19937 rng(11);
  for (int round = 0; round < 60; ++round) {
    std::string text = RandomText(&rng, 400);
    if (round % 3 == 0) text.insert(text.size() / 2, std::string(1 + rng() % 3000, " \n\ta"[rng() % 4]));
    if (round % 5 == 0) text.insert(rng() % text.size(), "\xFF\xC3 \xE2\x82");
    const auto whole = tokenizer_->Encode(text, {});
    StreamEncoder encoder(*tokenizer_, {});
    std::vector<int32_t> ids;
    const size_t longest = round % 2 ? 3 : 700;
    for (size_t pos = 0; pos < text.size();) {
      const size_t n = std::min<size_t>(1 + rng() % longest, text.size() - pos);
      encoder.Push(std::string_view(text).substr(pos, n), &ids);
      pos += n;
    }
    encoder.Finish(&ids);
    ASSERT_EQ(ids, whole) << "round " << round;
  }
}

TEST_P(Vocabulary, WordsWithoutAnEndAreCutAtTheSamePlaceInAStream) {
  for (const char* unit : {"a", " ", "\n", "1", "\xE4\xB8\x96", "!? "}) {
    std::string text = "x ";
    while (text.size() < 200'000) text += unit;
    text += "the end";
    const auto whole = tokenizer_->Encode(text, kPlain);
    StreamEncoder encoder(*tokenizer_, kPlain);
    std::vector<int32_t> ids;
    int64_t most_pending = 0;
    for (size_t pos = 0; pos < text.size(); pos += 1000) {
      encoder.Push(std::string_view(text).substr(pos, 1000), &ids);
      most_pending = std::max(most_pending, encoder.pending_bytes());
    }
    encoder.Finish(&ids);
    EXPECT_EQ(ids, whole) << "of '" << unit << "'";
    EXPECT_EQ(tokenizer_->Decode(ids), text);
    EXPECT_LE(most_pending, 140'000);
  }
}

TEST_P(Vocabulary, ReportsBrokenUtf8) {
  EncodeReport report;
  const auto ids = tokenizer_->Encode("a\xFFz\xE2\x82", kPlain, &report);
  EXPECT_EQ(report.n_replaced, 2);
  EXPECT_EQ(tokenizer_->Decode(ids), "a\xEF\xBF\xBDz\xEF\xBF\xBD");
}

INSTANTIATE_TEST_SUITE_P(Data, PublishedVectors,
                         ::testing::Values("gpt-2", "llama-spm", "llama-bpe", "qwen2", "phi-3"));
INSTANTIATE_TEST_SUITE_P(Data, Vocabulary, ::testing::Values("gpt-2", "llama-spm", "llama-bpe", "qwen2", "smollm"));

TEST(SmolLm, GivesTheIdsOfTheCollection) {
  const auto cases = ReadData("tokenizers/smollm/cases.jsonl");
  const auto tokenizer = LoadNamed("smollm");
  if (!cases || !tokenizer) GTEST_SKIP() << "WEIR_DATA has no vocabulary smollm";
  int n = 0;
  for (const std::string& line : testing::Lines(*cases)) {
    const auto item = nlohmann::json::parse(line);
    EXPECT_EQ(tokenizer->Encode(item["text"].get<std::string>(), kPlain), item["ids"].get<std::vector<int32_t>>())
        << line;
    ++n;
  }
  EXPECT_GT(n, 20);
}

// Whole files: the number of tokens that the data's maker counted.
TEST(Counts, OfWholeFilesAreTheExpectedOnes) {
  const auto table = ReadData("tokenizers/expected_counts.tsv");
  if (!table) GTEST_SKIP() << "WEIR_DATA has no tokenizers/expected_counts.tsv";
  int n = 0;
  for (const std::string& line : testing::Lines(*table)) {
    std::istringstream in(line);
    std::string path, name;
    int64_t bytes = 0, tokens = 0;
    if (!(in >> path >> name >> bytes >> tokens)) continue;
    const auto text = ReadData(path);
    if (!text) continue;  // the novels are packed; their counts are checked where they are unpacked
    const auto tokenizer = LoadNamed(name == "llama3" ? "llama-bpe" : name);
    ASSERT_TRUE(tokenizer) << name;
    EXPECT_EQ(static_cast<int64_t>(tokenizer->Encode(*text, kPlain).size()), tokens) << line;
    ++n;
  }
  EXPECT_GE(n, 8);
}

}  // namespace
}  // namespace weir
