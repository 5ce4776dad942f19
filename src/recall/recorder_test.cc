// SPDX-License-Identifier: Apache-2.0
// What a session reads becomes blocks: all of it, in order, each of one role, whatever the pieces it came in.
#include "recall/recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/utf8.h"
#include "quant/half.h"
#include "support/loaded.h"

namespace weir {
namespace {

struct Kept {
  int64_t seq;
  int32_t n_tokens;
  Role role;
  int64_t t_ms;
  std::string text;
  size_t n_numbers;
  friend bool operator==(const Kept&, const Kept&) = default;
};

class RecorderTest : public testing::TinyLlamaTest {
 protected:
  std::unique_ptr<Recorder> Make(std::span<uint16_t> rows = {}) {
    kept_.clear();
    return std::make_unique<Recorder>(
        model_->tokenizer(),
        [this](const Block& block) {
          EXPECT_EQ(ValidUtf8Prefix(block.text), block.text.size());
          kept_.push_back(
              {block.seq, block.n_tokens, block.role, block.t_ms, std::string(block.text), block.rows.size()});
        },
        rows);
  }
  std::vector<int32_t> Encode(const std::string& text) {
    EncodeOptions options;
    options.add_special = false;
    return model_->tokenizer().Encode(text, options);
  }
  static Arrival Of(const std::vector<int32_t>& tokens, int64_t seq) {
    return {.seq = seq, .tokens = tokens, .n = std::ssize(tokens), .t_src_ms = 10 * seq};
  }
  std::string Text() const {
    std::string out;
    for (const Kept& one : kept_) out += one.text;
    return out;
  }

  std::vector<Kept> kept_;
};

std::string Story(int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += i % 3 == 0 ? " the man" : i % 3 == 1 ? " and the" : " sea,";
  return out;
}

// Of a turn of a chat, what the template puts around the words: control tokens and the role's name.
TEST_F(RecorderTest, TheTemplatesFrameIsNoText) {
  const int32_t control = model_->tokenizer().bos_id();
  ASSERT_EQ(model_->tokenizer().Type(control), TokenType::kControl);
  struct {
    std::string said, kept;
  } const cases[] = {{"user\nthe man and the sea", "the man and the sea"},
                     {"assistant\n", ""},
                     {"user\nuser names are here", "user names are here"},
                     {" user manuals", " user manuals"},
                     {"users", "users"},
                     {"the user\nis here", "the user\nis here"}};
  for (const auto& [said, kept] : cases) {
    auto recorder = Make();
    std::vector<int32_t> tokens = {control};
    const std::vector<int32_t> more = Encode(said);
    tokens.insert(tokens.end(), more.begin(), more.end());
    for (size_t i = 0; i < tokens.size(); ++i) recorder->Arrived(Of({tokens[i]}, static_cast<int64_t>(i)));
    recorder->Flush();
    std::string text = Text();
    // The tiny vocabulary puts a space before a text.
    if (text.starts_with(' ') && !kept.starts_with(' ')) text.erase(0, 1);
    EXPECT_EQ(text, kept) << said;
    int64_t n = 0;
    for (const Kept& one : kept_) n += one.n_tokens;
    EXPECT_EQ(n, kept.empty() ? 0 : std::ssize(tokens));
  }
}

TEST_F(RecorderTest, BlocksAreTheStreamHoweverItCame) {
  const std::vector<int32_t> tokens = Encode(Story(200));
  ASSERT_GT(tokens.size(), 150u);
  auto recorder = Make();
  recorder->Arrived(Of(tokens, 5));
  recorder->Flush();
  const std::vector<Kept> whole = kept_;
  ASSERT_GT(whole.size(), 2u);
  int64_t seq = 5;
  for (const Kept& one : whole) {
    EXPECT_EQ(one.seq, seq);
    seq += one.n_tokens;
    EXPECT_LE(one.n_tokens, 64);
    if (&one != &whole.front()) {
      EXPECT_EQ(one.text.front(), ' ');
    }
    if (&one != &whole.back()) EXPECT_GE(one.n_tokens, 32);
  }
  EXPECT_EQ(seq, 5 + std::ssize(tokens));
  EXPECT_NE(Text().find("the man and the sea,"), std::string::npos);
  const std::string text = Text();
  for (const uint64_t seed : {1, 2, 3}) {
    Rng rng(seed);
    auto pieces = Make();
    for (size_t at = 0; at < tokens.size();) {
      const size_t n = std::min(tokens.size() - at, size_t{1} + rng.Below(seed == 1 ? 1 : 40));
      pieces->Arrived(Of({tokens.begin() + static_cast<ptrdiff_t>(at), tokens.begin() + static_cast<ptrdiff_t>(at + n)},
                         5 + static_cast<int64_t>(at)));
      at += n;
    }
    pieces->Flush();
    EXPECT_EQ(Text(), text);
    ASSERT_EQ(kept_.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(kept_[i].seq, whole[i].seq);
  }
}

TEST_F(RecorderTest, EveryBlockIsOfOneRoleAndHasItsTime) {
  const std::vector<int32_t> tokens = Encode(" the man");
  const auto n = std::ssize(tokens);
  auto recorder = Make();
  Arrival arrival = Of(tokens, 0);
  recorder->Arrived(arrival);
  arrival.seq += n;
  arrival.question = true;
  arrival.t_src_ms = 700;
  recorder->Arrived(arrival);
  arrival.seq += n;
  arrival.question = false;
  arrival.generated = true;
  recorder->Arrived(arrival);
  arrival.seq += n;
  arrival.generated = false;
  recorder->Arrived(arrival);
  ASSERT_EQ(kept_.size(), 3u);  // the last one may go on
  EXPECT_EQ(kept_[0].role, Role::kInput);
  EXPECT_EQ(kept_[1].role, Role::kQuestion);
  EXPECT_EQ(kept_[1].t_ms, 700);
  EXPECT_EQ(kept_[2].role, Role::kAnswer);
  recorder->Flush();
  ASSERT_EQ(kept_.size(), 4u);
  EXPECT_EQ(kept_[3].seq, 3 * n);
  recorder->Flush();
  EXPECT_EQ(kept_.size(), 4u);  // nothing twice
}

// Seqs that an excerpt took are no part of any block.
TEST_F(RecorderTest, APictureIsOneBlockHoweverItsRowsCome) {
  std::vector<uint16_t> rows(6);  // of two numbers each: a picture of three rows fits
  const auto recorder = Make(rows);
  const std::vector<float> three = {1, 2, 3, 4, 5, 6}, four(8, 1.0f);
  const auto part = [](const std::vector<float>& all, int64_t row, int64_t n, int64_t seq) {
    return Arrival{.seq = seq + row,
                   .embeddings = std::span(all).subspan(static_cast<size_t>(2 * row), static_cast<size_t>(2 * n)),
                   .n = n,
                   .modality = Modality::kVideo,
                   .columns = 8,
                   .row = row,
                   .n_rows = std::ssize(all) / 2,
                   .t_src_ms = 7};
  };
  recorder->Arrived(part(three, 0, 2, 10));
  EXPECT_TRUE(kept_.empty());
  recorder->Arrived(part(three, 2, 1, 10));
  ASSERT_EQ(kept_.size(), 1u);
  EXPECT_EQ(kept_[0].seq, 10);
  EXPECT_EQ(kept_[0].n_tokens, 3);
  EXPECT_EQ(kept_[0].t_ms, 7);
  EXPECT_EQ(kept_[0].n_numbers, 6u);
  EXPECT_EQ(rows[5], F32ToF16(6));
  // One that does not fit is left out, and so is the rest of it.
  recorder->Arrived(part(four, 0, 3, 20));
  recorder->Arrived(part(four, 3, 1, 20));
  // A part whose beginning never came.
  recorder->Arrived(part(three, 2, 1, 30));
  EXPECT_EQ(kept_.size(), 1u);
}

TEST_F(RecorderTest, AGapEndsABlock) {
  const std::vector<int32_t> tokens = Encode(" the man");
  auto recorder = Make();
  recorder->Arrived(Of(tokens, 0));
  recorder->Arrived(Of(tokens, 100));
  recorder->Flush();
  ASSERT_EQ(kept_.size(), 2u);
  EXPECT_EQ(kept_[0].n_tokens, std::ssize(tokens));
  EXPECT_EQ(kept_[1].seq, 100);
}

TEST_F(RecorderTest, ACharacterInPiecesStaysWholeUnlessItIsCutForGood) {
  const std::vector<int32_t> tokens = Encode(" sea\U0001F30A");
  ASSERT_GE(tokens.size(), 5u) << "the character is a single token here";
  const std::vector<int32_t> head(tokens.begin(), tokens.end() - 2), tail(tokens.end() - 2, tokens.end());
  auto recorder = Make();
  recorder->Arrived(Of(head, 0));
  recorder->Arrived(Of(tail, std::ssize(head)));
  recorder->Flush();
  ASSERT_EQ(kept_.size(), 1u);
  EXPECT_TRUE(kept_[0].text.ends_with("sea\U0001F30A")) << kept_[0].text;
  auto cut = Make();
  cut->Arrived(Of(head, 0));
  cut->Flush();
  ASSERT_EQ(kept_.size(), 1u);
  EXPECT_TRUE(kept_[0].text.ends_with("sea\uFFFD")) << kept_[0].text;
}

TEST_F(RecorderTest, WhatIsDroppedIsNotKept) {
  auto recorder = Make();
  recorder->Arrived(Of(Encode(" the man"), 0));
  recorder->Drop();
  recorder->Flush();
  EXPECT_TRUE(kept_.empty());
  recorder->Arrived(Of(Encode(" and the sea"), 0));
  recorder->Flush();
  ASSERT_EQ(kept_.size(), 1u);
  EXPECT_EQ(kept_[0].text.find("man"), std::string::npos);
}

// A word without an end, and a text without spaces, are cut all the same.
TEST_F(RecorderTest, BlocksAreBounded) {
  auto recorder = Make();
  std::vector<int32_t> tokens;
  for (const int32_t id : Encode("x" + std::string(5000, 'q'))) tokens.push_back(id);
  recorder->Arrived(Of(tokens, 0));
  recorder->Flush();
  int64_t n = 0;
  for (const Kept& one : kept_) {
    EXPECT_LE(one.n_tokens, 64);
    EXPECT_LE(one.text.size(), 4096u);
    n += one.n_tokens;
  }
  EXPECT_EQ(n, std::ssize(tokens));
}

TEST_F(RecorderTest, WithoutRoomNoPictureIsKept) {
  const std::vector<float> numbers = {1, -2, 0.5f, 3, 4, 5};
  const auto recorder = Make();
  recorder->Arrived(Of(Encode(" the man"), 0));
  recorder->Arrived({.seq = 9, .embeddings = numbers, .n = 3, .modality = Modality::kImage, .columns = 3, .n_rows = 3});
  ASSERT_EQ(kept_.size(), 1u);  // the words before it are handed over
  EXPECT_EQ(kept_[0].seq, 0);
}

}  // namespace
}  // namespace weir
