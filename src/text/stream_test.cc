// SPDX-License-Identifier: Apache-2.0
// Special tokens, pieces, decoding and what Load() rejects, with a tokenizer small enough to read. Streams over real
// vocabularies are tested in tokenizer_test.cc.
#include "text/stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "text/vocab_test_util.h"

namespace weir {
namespace {

using Ids = std::vector<int32_t>;
using testing::LoadFrom;
using testing::MetadataBuilder;

// All 256 bytes (ids 0 to 255, the letter a is 97), "ab" 256, and the special ones from 257 on.
struct Parts {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<std::string> merges = {"a b"};
  std::string name = "tiny";
};

Parts ByteParts() {
  Parts p;
  for (int b = 0; b < 256; ++b) p.tokens.push_back(testing::SpellBytes(std::string(1, static_cast<char>(b))));
  p.tokens.insert(p.tokens.end(), {"ab", "<|end|>", "<|end|>x", "<u>", "<unk>"});
  p.types.assign(257, 1);
  p.types.insert(p.types.end(), {3, 3, 4, 2});
  return p;
}

MetadataBuilder Build(const Parts& p) {
  MetadataBuilder b;
  b.Add("general.name", p.name);
  b.Add("tokenizer.ggml.model", "gpt2").Add("tokenizer.ggml.pre", "gpt-2").Add("tokenizer.ggml.tokens", p.tokens);
  b.Add("tokenizer.ggml.token_type", p.types).Add("tokenizer.ggml.merges", p.merges);
  b.Add("tokenizer.ggml.bos_token_id", 260).Add("tokenizer.ggml.eos_token_id", 257);
  return b;
}

std::unique_ptr<Tokenizer> Tiny() {
  auto made = LoadFrom(Build(ByteParts()).Add("tokenizer.ggml.add_bos_token", true));
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(made).value();
}

TEST(Special, ControlTokensOnlyWhenAsked) {
  const auto t = Tiny();
  EXPECT_EQ(t->Encode("<u>ab", {false, false}), (Ids{259, 256}));
  EXPECT_EQ(t->Encode("ab<|end|>ab", {false, true}), (Ids{256, 257, 256}));
  EXPECT_EQ(t->Encode("ab<|end|>", {false, false}).size(), 8u);
  EXPECT_EQ(t->Encode("<|end|>x", {false, true}), (Ids{258}));  // the longest
  EXPECT_EQ(t->Encode("ab", {true, true}), (Ids{260, 256}));
  EXPECT_EQ(t->Encode("", {true, true}), (Ids{260}));
}

TEST(Special, WordsDoNotReachAcrossThem) {
  const auto t = Tiny();
  EXPECT_EQ(t->Encode("a<u>b", {false, false}), (Ids{97, 259, 98}));
}

TEST(Special, AreFoundHoweverTheStreamIsCut) {
  const auto t = Tiny();
  const std::string text = "ab<|end|>x<|end|<|end|><u><uab<|end|>";
  const auto whole = t->Encode(text, {true, true});
  EXPECT_EQ(std::count(whole.begin(), whole.end(), 257), 2);
  for (size_t step = 1; step <= text.size(); ++step) {
    // With a long lead, the encoder encodes before the text is complete.
    const std::string lead(1000, ' ');
    StreamEncoder encoder(*t, {true, true});
    Ids ids;
    encoder.Push(lead, &ids);
    for (size_t pos = 0; pos < text.size(); pos += step) encoder.Push(std::string_view(text).substr(pos, step), &ids);
    encoder.Finish(&ids);
    EXPECT_EQ(ids, t->Encode(lead + text, {true, true})) << step;
  }
}

TEST(Special, Phi3TokensTakeTheSpacesBehindThem) {
  Parts p = ByteParts();
  p.name = "Phi-3 mini";
  const auto t = LoadFrom(Build(p));
  ASSERT_TRUE(t.ok());
  EXPECT_EQ((*t)->Encode("<|end|> \n ab", {false, true}), (Ids{257, 256}));
  const std::vector<TextPiece> pieces = {{"<|end|>\n", true}, {"ab", false}};
  EXPECT_EQ((*t)->EncodePieces(pieces, false), (Ids{257, 256}));
}

TEST(Pieces, JoinTextButNotControlTokens) {
  const auto t = Tiny();
  const std::vector<TextPiece> joined = {{"a", false}, {"b", true}};
  EXPECT_EQ(t->EncodePieces(joined, false), (Ids{256}));
  const std::vector<TextPiece> mixed = {{"<|end|>", true}, {"<|end|>", false}, {"<|end|>", true}};
  const auto ids = t->EncodePieces(mixed, false);
  EXPECT_EQ(ids.size(), 9u);
  EXPECT_EQ(ids.front(), 257);
  EXPECT_EQ(ids.back(), 257);
  const std::vector<TextPiece> spread = {{"<|en", true}, {"d|>", false}};
  EXPECT_EQ(t->EncodePieces(spread, false).size(), 7u);
  const std::vector<TextPiece> touching = {{"<|en", true}, {"d|>", true}};
  EXPECT_EQ(t->EncodePieces(touching, false), (Ids{257}));
  const std::vector<TextPiece> rounds = {
      {"<|end|><u>", true}, {"<u><|end|>", false}, {"<u>ab<|end|>", true}, {"<u>", false}};
  const auto many = t->EncodePieces(rounds, false);
  EXPECT_EQ(std::count(many.begin(), many.end(), 257), 2);
  EXPECT_EQ(std::count(many.begin(), many.end(), 259), 4);
  EXPECT_EQ(t->Decode(many, true), "<|end|><u><u><|end|><u>ab<|end|><u>");
  EncodeReport report;
  const std::vector<TextPiece> broken = {{"\xFF", false}, {"<u>\xC3", true}};
  EXPECT_EQ(t->EncodePieces(broken, true, &report), (Ids{260, 0xEF, 0xBF, 0xBD, 259, 0xEF, 0xBF, 0xBD}));
  EXPECT_EQ(report.n_replaced, 2);
}

TEST(Decoder, WritesWholeCharactersOnly) {
  const auto t = Tiny();
  StreamDecoder decoder(*t, {});
  const auto push = [&](int32_t id) {
    std::string out;
    decoder.Push(id, &out);
    return out;
  };
  EXPECT_EQ(push('a'), "a");
  EXPECT_EQ(push(0xF0), "");
  EXPECT_EQ(push(0x9F), "");
  EXPECT_EQ(push(0xA6), "");
  EXPECT_EQ(push(0x99), "\xF0\x9F\xA6\x99");
  EXPECT_EQ(push(0xE2), "");
  EXPECT_EQ(push('b'),
            "\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(push(257), "");
  EXPECT_EQ(push(-1) + push(100000), "");
  EXPECT_EQ(push(0xC3), "");
  std::string end;
  decoder.Finish(&end);
  EXPECT_EQ(end, "\xEF\xBF\xBD");
  end.clear();
  decoder.Finish(&end);
  EXPECT_EQ(end, "");
  EXPECT_EQ(t->Decode(Ids{'a', 257, 259}, true), "a<|end|><u>");
}

TEST(Decoder, TakesOffThePrefixSpaceOnlyAtTheStart) {
  MetadataBuilder b;
  b.Add("tokenizer.ggml.model", "llama");
  b.Add("tokenizer.ggml.tokens",
        std::vector<std::string>{"<unk>", "<s>", "</s>", "\u2581a", "a", "\u2581", "<0xC3>", "<0xA9>"});
  b.Add("tokenizer.ggml.scores", std::vector<float>{0, 0, 0, -1, -2, -3, 0, 0});
  b.Add("tokenizer.ggml.token_type", std::vector<int32_t>{2, 3, 3, 1, 1, 1, 6, 6});
  const auto t = LoadFrom(b);
  ASSERT_TRUE(t.ok()) << t.status().message();
  EXPECT_EQ((*t)->Encode("a a\u00E9", {}), (Ids{1, 3, 3, 6, 7}));
  EXPECT_EQ((*t)->Decode(Ids{1, 3, 3, 6, 7}), "a a\u00E9");
  EXPECT_EQ((*t)->Decode(Ids{1, 3}, true), "<s>a");
  StreamDecoder rest(**t, {.at_start = false});
  std::string out;
  rest.Push(3, &out);
  EXPECT_EQ(out, " a");
  // Text spelled like a control or byte token is still text; without tokens for its letters, it is unknown once.
  EXPECT_EQ((*t)->Encode("</s>", {.add_special = false}), (Ids{5, 0}));
  EXPECT_EQ((*t)->Encode("<0xC3>", {.add_special = false}), (Ids{5, 0}));
  EXPECT_TRUE((*t)->IsEndOfGeneration(2));
  EXPECT_FALSE((*t)->IsEndOfGeneration(1));
}

TEST(EndOfGeneration, KnowsTheFilesIdsAndTheUsualTexts) {
  Parts p = ByteParts();
  p.tokens.insert(p.tokens.end(), {"<|im_end|>", "<end_of_turn>", "<|eom|>", "</s>"});
  p.types.insert(p.types.end(), {1, 4, 3, 1});
  const auto t = LoadFrom(Build(p).Add("tokenizer.ggml.eom_token_id", 263));
  ASSERT_TRUE(t.ok()) << t.status().message();
  for (const int32_t id : {257, 261, 262, 263}) EXPECT_TRUE((*t)->IsEndOfGeneration(id)) << id;
  for (const int32_t id : {-1, 0, 256, 258, 264, 100000}) EXPECT_FALSE((*t)->IsEndOfGeneration(id)) << id;
  EXPECT_EQ((*t)->eot_id(), 261);
  EXPECT_EQ((*t)->Type(261), TokenType::kControl);  // whatever the file says
}

TEST(Dropped, BytesWithoutATokenAreCounted) {
  Parts p = ByteParts();
  p.tokens['q'] = "no longer q";
  const auto t = LoadFrom(Build(p));
  ASSERT_TRUE(t.ok());
  EncodeReport report;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "aqb q ";
  const auto ids = (*t)->Encode(text, {false, false}, &report);
  EXPECT_EQ(report.n_dropped_bytes, 6000);
  EXPECT_EQ(ids.size(), text.size() - 6000);
}

TEST(Load, RefusesContradictions) {
  const Parts good = ByteParts();
  const struct {
    const char* what;
    MetadataBuilder metadata;
  } cases[] = {
      {"tokenizer.ggml.tokens", MetadataBuilder().Add("tokenizer.ggml.model", "gpt2")},
      {"tokenizer.ggml.model", MetadataBuilder().Add("tokenizer.ggml.tokens", good.tokens)},
      {"'bert'", MetadataBuilder().Add("tokenizer.ggml.tokens", good.tokens).Add("tokenizer.ggml.model", "bert")},
      {"tokenizer.ggml.merges",
       MetadataBuilder().Add("tokenizer.ggml.tokens", good.tokens).Add("tokenizer.ggml.model", "gpt2")},
      {"tokenizer.ggml.scores",
       MetadataBuilder().Add("tokenizer.ggml.tokens", good.tokens).Add("tokenizer.ggml.model", "llama")},
      {"tokenizer.ggml.scores: expected ", Build(good).Add("tokenizer.ggml.scores", std::vector<float>{1, 2})},
      {"tokenizer.ggml.scores[3]",
       [&] {
         std::vector<float> scores(good.tokens.size(), 0.0f);
         scores[3] = NAN;
         return Build(good).Add("tokenizer.ggml.scores", scores);
       }()},
      {"tokenizer.ggml.token_type",
       [&] {
         Parts p = good;
         p.types.pop_back();
         return Build(p);
       }()},
      {"tokenizer.ggml.token_type[7]",
       [&] {
         Parts p = good;
         p.types[7] = 9;
         return Build(p);
       }()},
      {"tokenizer.ggml.merges[1]",
       [&] {
         Parts p = good;
         p.merges.push_back("nospace");
         return Build(p);
       }()},
      {"tokenizer.ggml.eot_token_id", Build(good).Add("tokenizer.ggml.eot_token_id", 261)},
      {"tokenizer.ggml.padding_token_id", Build(good).Add("tokenizer.ggml.padding_token_id", -2)},
      {"tokenizer.ggml.add_bos_token", Build(good).Add("tokenizer.ggml.add_bos_token", "yes")},
  };
  for (const auto& c : cases) {
    const auto t = LoadFrom(c.metadata);
    ASSERT_FALSE(t.ok()) << c.what;
    EXPECT_NE(t.status().message().find(c.what), std::string::npos) << t.status().message();
    EXPECT_EQ(t.status().message().find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace weir
