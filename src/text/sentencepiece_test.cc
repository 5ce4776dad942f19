// SPDX-License-Identifier: Apache-2.0
// SPM and unigram models against the outputs of the SentencePiece library (tools/golden/unigram.py).
#include <gtest/gtest.h>

#include <random>

#include "base/base64.h"
#include "support/build_paths.h"
#include "text/stream.h"
#include "text/tokenizer.h"
#include "text/vocab_test_util.h"

namespace weir {
namespace {

class SentencePiece : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::ifstream in(SourceDir() + "/tests/golden/tokenizer/" + GetParam() + ".json");
    golden_ = nlohmann::json::parse(in);
    auto result = testing::LoadFrom(Metadata());
    ASSERT_TRUE(result.ok()) << result.status().message();
    tokenizer_ = std::move(result).value();
  }

  testing::MetadataBuilder Metadata() const {
    testing::MetadataBuilder b;
    b.Add("tokenizer.ggml.model", golden_["model"].get<std::string>());
    b.Add("tokenizer.ggml.tokens", golden_["tokens"].get<std::vector<std::string>>());
    b.Add("tokenizer.ggml.scores", golden_["scores"].get<std::vector<float>>());
    b.Add("tokenizer.ggml.token_type", golden_["types"].get<std::vector<int32_t>>());
    b.Add("tokenizer.ggml.unknown_token_id", golden_["unknown_id"].get<int>());
    b.Add("tokenizer.ggml.add_space_prefix", golden_["add_space_prefix"].get<bool>());
    b.Add("tokenizer.ggml.remove_extra_whitespaces", golden_["remove_extra_whitespaces"].get<bool>());
    const std::string charsmap = *DecodeBase64(golden_["charsmap_base64"].get<std::string>());
    if (!charsmap.empty()) {
      b.Add("tokenizer.ggml.precompiled_charsmap", std::vector<int8_t>(charsmap.begin(), charsmap.end()));
    }
    return b;
  }

  nlohmann::json golden_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};

TEST_P(SentencePiece, GivesTheLibrarysIds) {
  for (const auto& c : golden_["cases"]) {
    EXPECT_EQ(tokenizer_->Encode(c["text"].get<std::string>(), kPlain), c["ids"].get<std::vector<int32_t>>())
        << c["text"];
  }
}

TEST_P(SentencePiece, StreamGivesTheSameIds) {
  std::string text;
  for (const auto& c : golden_["cases"]) text += c["text"].get<std::string>() + " ";
  const auto whole = tokenizer_->Encode(text, kPlain);
  std::mt19937 rng(3);
  for (int round = 0; round < 30; ++round) {
    StreamEncoder encoder(*tokenizer_, kPlain);
    std::vector<int32_t> ids;
    for (size_t pos = 0; pos < text.size();) {
      const size_t n = std::min<size_t>(1 + rng() % (round % 2 ? 5 : 300), text.size() - pos);
      encoder.Push(std::string_view(text).substr(pos, n), &ids);
      pos += n;
    }
    encoder.Finish(&ids);
    ASSERT_EQ(ids, whole) << "round " << round;
  }
}

// A vocabulary whose merges, not its scores, say which pair is joined first.
TEST(Gemma4Tokenizer, JoinsInTheOrderOfTheMerges) {
  const std::vector<std::string> tokens = {"<unk>", "a", "b", "c", "▁", "ab", "bc", "abc", "▁a", "<0x21>", "<turn|>"};
  const std::vector<int32_t> types = {2, 1, 1, 1, 1, 1, 1, 1, 1, 6, 3};
  const auto load = [&](const std::vector<std::string>& merges) {
    testing::MetadataBuilder b;
    b.Add("tokenizer.ggml.model", "gemma4").Add("tokenizer.ggml.tokens", tokens);
    b.Add("tokenizer.ggml.scores", std::vector<float>(tokens.size(), -1000.0f));
    b.Add("tokenizer.ggml.token_type", types).Add("tokenizer.ggml.unknown_token_id", 0);
    b.Add("tokenizer.ggml.add_space_prefix", false).Add("tokenizer.ggml.merges", merges);
    auto out = testing::LoadFrom(b);
    EXPECT_TRUE(out.ok()) << out.status().message();
    return std::move(out).value();
  };
  EXPECT_EQ(load({"b c", "a b"})->Encode("abc a!", kPlain), (std::vector<int32_t>{1, 6, 4, 1, 9}));
  EXPECT_EQ(load({"a b", "b c"})->Encode("abc", kPlain), (std::vector<int32_t>{5, 3}));
  const auto tokenizer = load({"a b", "b c", "▁ a", "a bc", "ab c"});
  EXPECT_EQ(tokenizer->Encode("abc a", kPlain), (std::vector<int32_t>{7, 8}));
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(10));
  testing::MetadataBuilder without;
  without.Add("tokenizer.ggml.model", "gemma4").Add("tokenizer.ggml.tokens", tokens);
  EXPECT_NE(testing::LoadFrom(without).status().message().find("merges"), std::string::npos);
}

// Words are cut from each other only where no token goes on.
TEST(SpmTokenizer, ATokenMayGoOverASpace) {
  const std::vector<std::string> tokens = {"<unk>", "<s>", "a", "b", "▁", "▁b", "a▁", "a▁b", "c"};
  testing::MetadataBuilder b;
  b.Add("tokenizer.ggml.model", "llama").Add("tokenizer.ggml.tokens", tokens);
  b.Add("tokenizer.ggml.scores", std::vector<float>{0, 0, -8, -8, -8, -3, -2, -1, -8});
  b.Add("tokenizer.ggml.token_type", std::vector<int32_t>{2, 3, 1, 1, 1, 1, 1, 1, 1});
  b.Add("tokenizer.ggml.unknown_token_id", 0).Add("tokenizer.ggml.add_space_prefix", false);
  const auto tokenizer = testing::LoadFrom(b);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->Encode("a b", kPlain), (std::vector<int32_t>{7}));
  EXPECT_EQ((*tokenizer)->Encode("c b", kPlain), (std::vector<int32_t>{8, 5}));
}

class UnigramModel : public SentencePiece {};

// A damaged normaliser must not be read past its end, whatever its trie contains.
TEST_P(UnigramModel, SurvivesADamagedCharsmap) {
  const std::string charsmap = *DecodeBase64(golden_["charsmap_base64"].get<std::string>());
  std::mt19937 rng(5);
  int loaded = 0;
  for (int round = 0; round < 300; ++round) {
    std::string damaged = charsmap;
    for (int i = 0; i < 20; ++i) damaged[4 + rng() % (damaged.size() - 5)] = static_cast<char>(rng());
    if (round % 3 == 0) damaged.resize(rng() % damaged.size());
    testing::MetadataBuilder b;
    b.Add("tokenizer.ggml.model", "t5").Add("tokenizer.ggml.unknown_token_id", 0);
    b.Add("tokenizer.ggml.tokens", golden_["tokens"].get<std::vector<std::string>>());
    b.Add("tokenizer.ggml.scores", golden_["scores"].get<std::vector<float>>());
    b.Add("tokenizer.ggml.precompiled_charsmap", std::vector<int8_t>(damaged.begin(), damaged.end()));
    const auto tokenizer = testing::LoadFrom(b);
    if (!tokenizer.ok()) continue;
    ++loaded;
    for (const auto& c : golden_["cases"]) (void)(*tokenizer)->Encode(c["text"].get<std::string>(), kPlain);
  }
  EXPECT_GT(loaded, 100);
}

INSTANTIATE_TEST_SUITE_P(Golden, UnigramModel, ::testing::Values("unigram", "unigram_bytes", "unigram_spaces"));
INSTANTIATE_TEST_SUITE_P(Golden, SentencePiece,
                         ::testing::Values("unigram", "unigram_bytes", "unigram_spaces", "spm", "spm_no_prefix"));

}  // namespace
}  // namespace weir
