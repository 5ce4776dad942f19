// SPDX-License-Identifier: Apache-2.0
// Excerpts under every policy: room for them and a listener change nothing while nobody asks; what was read for one
// answer leaves completely, and the stream goes on without it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "kv/trace.h"
#include "support/tiny.h"

namespace weir {
namespace {

using testing::Held;
using testing::LogitsOf;
using testing::RandomTokens;
using testing::Tiny;

constexpr int32_t kPot = 64, kRoom = 24;

struct Heard final : StreamListener {
  std::vector<int64_t> seqs;
  void Arrived(const Arrival& arrival) override {
    for (int64_t i = 0; i < arrival.n; ++i) seqs.push_back(arrival.seq + i);
  }
};

class ExcerptTest : public ::testing::TestWithParam<const PolicyInfo*> {
 protected:
  std::unique_ptr<Session> Make(int32_t excerpt_slots, const std::string& spec = "") {
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec(spec.empty() ? GetParam()->name : spec)).value();
    options.pot_slots = kPot;
    options.chunk_rows = 8;
    options.excerpt_slots = excerpt_slots;
    options.probe = {1, 2, 3};
    auto session = Session::Make(*tiny_.model, *tiny_.backend, options);
    EXPECT_TRUE(session.ok()) << session.status().message();
    return *std::move(session);
  }
  std::span<const int32_t> Tokens(size_t from, size_t n) const { return std::span(tokens_).subspan(from, n); }
  // Heads may hold more than their share of the pot where its slots are spread over them.
  bool Spreads() const {
    return std::move(std::move(ParsePolicySpec(GetParam()->name)).value().Make()).value()->Needs().spread != 1;
  }
  bool Forgets() const {
    return std::move(std::move(ParsePolicySpec(GetParam()->name)).value().Make()).value()->Needs().evicts;
  }
  static Status ReadExcerpt(Session& session, std::span<const int32_t> tokens) {
    Session::AppendOptions options;
    options.excerpt = true;
    return session.Append(tokens, options);
  }
  // A round: the question in one call, an answer token by token.
  static void Round(Session& session, std::span<const int32_t> question, std::span<const int32_t> answer) {
    ASSERT_TRUE(session.BeginRound(question, std::ssize(answer)).ok());
    Session::AppendOptions options;
    options.end_of_prompt = true;
    ASSERT_TRUE(session.Append(question, options).ok());
    Session::AppendOptions one;
    one.generated = true;
    for (const int32_t id : answer) ASSERT_TRUE(session.Append({&id, 1}, one).ok());
  }
  static bool Holds(const Session& session, int64_t begin, int64_t end) {
    for (const std::vector<int64_t>& group : Held(session)) {
      if (std::ranges::any_of(group, [&](int64_t seq) { return seq >= begin && seq < end; })) return true;
    }
    return false;
  }
  static void ExpectFinite(Session& session) {
    for (const float logit : LogitsOf(session)) ASSERT_TRUE(std::isfinite(logit));
  }

  Tiny tiny_{"llama"};
  std::vector<int32_t> tokens_ = RandomTokens(2000, tiny_.model->config().n_vocab);
};

TEST_P(ExcerptTest, ChangesNothingWhileNobodyAsks) {
  const std::string folder = ::testing::TempDir() + "excerpt_" + std::to_string(getpid());
  std::vector<std::vector<float>> logits[2];
  std::vector<std::vector<int64_t>> held[2];
  std::string traces[2];
  for (const int with : {0, 1}) {
    auto session = Make(with == 1 ? kRoom : 0);
    Heard heard;
    if (with == 1) session->SetListener(&heard);
    const std::string path = folder + std::to_string(with) + ".jsonl";
    TraceInfo info;
    info.pot = session->plan().pot;
    auto trace = std::move(TraceWriter::Open(path, std::move(info))).value();
    session->SetTrace(trace.get());
    size_t at = 0;
    for (const size_t n : {40u, 30u, 90u}) {
      if (!Forgets() && at + n > kPot) break;
      ASSERT_TRUE(session->Append(Tokens(at, n)).ok());
      logits[with].push_back(LogitsOf(*session));
      at += n;
    }
    if (Forgets()) {
      Round(*session, Tokens(at, 9), Tokens(at + 9, 12));
      logits[with].push_back(LogitsOf(*session));
    }
    held[with] = Held(*session);
    ASSERT_TRUE(trace->Close(session->pot(), session->n_seen()).ok());
    std::ifstream file(path);
    std::string head;
    std::getline(file, head);  // it says how many slots there are
    std::stringstream rest;
    rest << file.rdbuf();
    traces[with] = rest.str();
    std::remove(path.c_str());
    if (with == 1) {
      ASSERT_EQ(std::ssize(heard.seqs), session->n_seen());
      for (size_t i = 0; i < heard.seqs.size(); ++i) ASSERT_EQ(heard.seqs[i], static_cast<int64_t>(i));
      session->SetListener(nullptr);
    }
  }
  EXPECT_EQ(logits[0], logits[1]);
  EXPECT_EQ(held[0], held[1]);
  EXPECT_FALSE(traces[0].empty());
  EXPECT_EQ(traces[0], traces[1]);
}

TEST_P(ExcerptTest, LeavesNothingBehind) {
  auto session = Make(kRoom);
  ASSERT_TRUE(session->Append(Tokens(0, 30)).ok());
  const std::vector<std::vector<int64_t>> before = Held(*session);
  const int32_t n_used = session->pot().n_used();
  ASSERT_TRUE(ReadExcerpt(*session, Tokens(500, 10)).ok());
  ASSERT_TRUE(ReadExcerpt(*session, Tokens(510, 6)).ok());  // goes on
  EXPECT_EQ(session->n_excerpt(), 16);
  for (size_t group = 0; group < before.size(); ++group) {  // nothing went for it
    EXPECT_TRUE(std::ranges::includes(Held(*session)[group], before[group]));
  }
  // While it is there, nothing can be saved or copied, and no second one begins behind other tokens.
  std::vector<uint8_t> bytes;
  auto other = Make(kRoom);
  EXPECT_EQ(session->Save(&bytes).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(other->CopyFrom(*session).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(session->Append(Tokens(30, 5)).ok());  // the question
  EXPECT_EQ(ReadExcerpt(*session, Tokens(500, 2)).code(), StatusCode::kInvalidArgument);
  Session::AppendOptions answer;
  answer.generated = true;
  ASSERT_TRUE(session->Append(Tokens(35, 4), answer).ok());
  ExpectFinite(*session);
  ASSERT_TRUE(session->TakeBackExcerpt().ok());
  EXPECT_EQ(session->n_excerpt(), 0);
  EXPECT_EQ(session->pot().n_used(), n_used + 9);
  EXPECT_FALSE(Holds(*session, 30, 46));
  EXPECT_TRUE(Holds(*session, 46, 55));
  EXPECT_EQ(session->n_seen(), 55);
  EXPECT_EQ(session->held().n_pinned, 0);
  // Everything of the stream is there: the excerpt is a gap and no end.
  EXPECT_EQ(session->held().unbroken_from, 0);

  // The stream goes on, through a save as well.
  ASSERT_TRUE(session->Save(&bytes).ok());
  ASSERT_TRUE(other->Restore(bytes).ok());
  auto copied = Make(kRoom);
  ASSERT_TRUE(copied->CopyFrom(*session).ok());
  const size_t n_more = Forgets() ? 300 : 20;
  for (Session* one : {session.get(), other.get(), copied.get()}) {
    EXPECT_EQ(one->held().unbroken_from, 0);
    ASSERT_TRUE(one->Append(Tokens(100, n_more)).ok());
    ExpectFinite(*one);
    ASSERT_TRUE(ReadExcerpt(*one, Tokens(700, 24)).ok());
    ASSERT_TRUE(one->Append(Tokens(40, 3)).ok());
    ASSERT_TRUE(one->TakeBackExcerpt().ok());
  }
  EXPECT_EQ(LogitsOf(*session), LogitsOf(*other));
  EXPECT_EQ(LogitsOf(*session), LogitsOf(*copied));
  EXPECT_EQ(Held(*session), Held(*other));
}

// A question and an answer that overflow the pot: the excerpt stays until it is taken back, and costs the stream none
// of its slots.
TEST_P(ExcerptTest, StaysWhileThePotIsSwept) {
  if (!Forgets()) GTEST_SKIP() << "never forgets";
  auto session = Make(kRoom);
  ASSERT_TRUE(session->Append(Tokens(0, 100)).ok());
  ASSERT_TRUE(ReadExcerpt(*session, Tokens(500, kRoom)).ok());
  Round(*session, Tokens(100, 20), Tokens(120, 60));
  for (const std::vector<int64_t>& group : Held(*session)) {
    for (int64_t seq = 100; seq < 100 + kRoom; ++seq) ASSERT_TRUE(std::ranges::binary_search(group, seq)) << seq;
  }
  if (!Spreads()) EXPECT_LE(session->pot().n_used(), kPot + kRoom);
  ExpectFinite(*session);
  ASSERT_TRUE(session->TakeBackExcerpt().ok());
  EXPECT_FALSE(Holds(*session, 100, 100 + kRoom));
  if (!Spreads()) EXPECT_LE(session->pot().n_used(), kPot);
  EXPECT_EQ(session->held().n_pinned, 0);
  ASSERT_TRUE(session->Append(Tokens(200, 200)).ok());
  if (!Spreads()) EXPECT_LE(session->pot().n_used(), kPot);
  ExpectFinite(*session);
}

TEST_P(ExcerptTest, TooMuchIsRefusedAndNothingIsRead) {
  auto session = Make(kRoom);
  ASSERT_TRUE(session->Append(Tokens(0, 20)).ok());
  EXPECT_EQ(ReadExcerpt(*session, Tokens(500, kRoom + 1)).code(), StatusCode::kOverBudget);
  EXPECT_EQ(session->n_seen(), 20);
  EXPECT_EQ(session->n_excerpt(), 0);
  ASSERT_TRUE(ReadExcerpt(*session, Tokens(500, kRoom - 1)).ok());
  EXPECT_EQ(ReadExcerpt(*session, Tokens(500, 2)).code(), StatusCode::kOverBudget);
  ASSERT_TRUE(ReadExcerpt(*session, Tokens(500, 1)).ok());
  EXPECT_EQ(session->n_excerpt(), kRoom);
  session->Reset();
  EXPECT_EQ(session->n_excerpt(), 0);
  ASSERT_TRUE(session->TakeBackExcerpt().ok());  // nothing to do
  auto none = Make(0);
  EXPECT_EQ(ReadExcerpt(*none, Tokens(0, 1)).code(), StatusCode::kOverBudget);
}

INSTANTIATE_TEST_SUITE_P(Folder, ExcerptTest, ::testing::ValuesIn(AllPolicyInfos().begin(), AllPolicyInfos().end()),
                         [](const auto& info) { return std::string(info.param->name); });

class ExcerptGapsTest : public ExcerptTest {};

// The most recent gaps are known. Behind an older one the recent past counts as broken, which is true of nothing that
// is not held.
TEST_P(ExcerptGapsTest, TheRecentPastGoesThroughGaps) {
  constexpr int kGaps = 16;
  auto session = Make(kRoom, "full");
  int64_t second_gap_end = 0;
  for (int i = 0; i < kGaps + 2; ++i) {
    ASSERT_TRUE(session->Append(Tokens(static_cast<size_t>(3 * i), 2)).ok());
    ASSERT_TRUE(ReadExcerpt(*session, Tokens(500, 5)).ok());
    ASSERT_TRUE(session->Append(Tokens(static_cast<size_t>(3 * i + 2), 1)).ok());
    EXPECT_EQ(session->held().unbroken_from, second_gap_end) << "the excerpt is held, " << i;
    ASSERT_TRUE(session->TakeBackExcerpt().ok());
    // Gap i is [8 i + 2, 8 i + 7).
    if (i >= kGaps) second_gap_end = 8 * (i - kGaps) + 7;
    EXPECT_EQ(session->held().unbroken_from, second_gap_end) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(One, ExcerptGapsTest, ::testing::Values(AllPolicyInfos()[0]));

// A pot of three tokens has a quarter of it for excerpts, none; layers with a state have no copy of it then.
TEST(Excerpt, OfNoTokensIsNothing) {
  for (const char* model : {"llama", "qwen3next"}) {
    for (const int32_t room : {0, 8}) {
      SCOPED_TRACE(std::string(model) + ", room for " + std::to_string(room));
      Tiny tiny(model);
      const std::vector<int32_t> tokens = RandomTokens(40, tiny.model->config().n_vocab);
      SessionOptions options;
      options.policy = std::move(ParsePolicySpec("window")).value();
      options.pot_slots = 16;
      options.excerpt_slots = room;
      auto session = std::move(Session::Make(*tiny.model, *tiny.backend, options)).value();
      ASSERT_TRUE(session->Append(tokens).ok());
      std::vector<uint8_t> before, after;
      ASSERT_TRUE(session->Save(&before).ok());
      Session::AppendOptions append;
      append.excerpt = true;
      const Status status = session->Append({}, append);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(session->n_excerpt(), 0);
      ASSERT_TRUE(session->TakeBackExcerpt().ok());
      ASSERT_TRUE(session->Save(&after).ok());
      EXPECT_EQ(after, before);
      if (room == 0) {
        EXPECT_EQ(session->Append({tokens.data(), 1}, append).code(), StatusCode::kOverBudget);
      }
    }
  }
}

// What is put back may be longer than a chunk.
TEST(Excerpt, ALongOneIsPutBackWhole) {
  Tiny tiny("llama");
  const std::vector<int32_t> tokens = RandomTokens(60, tiny.model->config().n_vocab);
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec("streaming_llm")).value();
  options.pot_slots = kPot;
  options.chunk_rows = 8;
  options.excerpt_slots = kRoom;
  auto session = std::move(Session::Make(*tiny.model, *tiny.backend, options)).value();
  ASSERT_TRUE(session->Append({tokens.data(), 30}).ok());
  std::vector<SlotMeta> rows(21);
  for (size_t i = 0; i < rows.size(); ++i) rows[i].token_id = static_cast<int32_t>(i);
  int n_calls = 0;
  const auto write = [&](int32_t, int32_t, uint8_t*, uint8_t*) { ++n_calls; };
  ASSERT_TRUE(session->PutExcerpt(rows, write).ok());
  const PotShape& shape = session->pot().shape();
  EXPECT_EQ(n_calls, shape.n_layers * shape.n_kv_heads);
  EXPECT_EQ(session->n_excerpt(), 21);
  EXPECT_EQ(session->n_seen(), 51);
  const std::span<const SlotMeta> held = session->pot().meta(0);
  ASSERT_EQ(held.size(), 51u);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(held[30 + i].token_id, static_cast<int32_t>(i));
    EXPECT_EQ(held[30 + i].seq, static_cast<int64_t>(30 + i));
  }
  ASSERT_TRUE(session->TakeBackExcerpt().ok());
  EXPECT_EQ(session->pot().n_used(), 30);
}

int32_t n_unscored_shown = -1;

// Asks for the newest rows' attention, and notes how many slots have none.
class NotesUnscored : public Policy {
 public:
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.granularity = Granularity::kPerLayer;
    needs.evidence.rows = EvidenceRows::kLast;
    needs.evidence.n_last = 3;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override { return n_slots - n_coming; }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    n_unscored_shown = view.n_unscored;
    keep->resize(static_cast<size_t>(n_keep));
    std::iota(keep->begin(), keep->end(), static_cast<int32_t>(view.slots.size()) - n_keep);
  }
};

// Rows that are put back have no scores. Once they are taken back, a policy is not told of any.
TEST(Excerpt, WhatWasTakenBackIsNotUnscored) {
  Tiny tiny("llama");
  const std::vector<int32_t> tokens = RandomTokens(100, tiny.model->config().n_vocab);
  const PolicyInfo info = {"notes_unscored", "", "", {}, [](const PolicyOptions&) -> Result<std::unique_ptr<Policy>> {
                             return std::unique_ptr<Policy>(new NotesUnscored);
                           }};
  SessionOptions options;
  options.policy.info = &info;
  options.pot_slots = kPot;
  options.excerpt_slots = kRoom;
  std::vector<int32_t> told;
  for (const bool with : {false, true}) {
    auto made = Session::Make(*tiny.model, *tiny.backend, options);
    ASSERT_TRUE(made.ok()) << made.status().message();
    const std::unique_ptr<Session> session = std::move(made).value();
    Session::AppendOptions prompt;
    prompt.end_of_prompt = true;
    ASSERT_TRUE(session->Append({tokens.data(), 60}, prompt).ok());
    if (with) {
      const std::vector<SlotMeta> rows(10, SlotMeta{.token_id = 5});
      ASSERT_TRUE(session->PutExcerpt(rows, [](int32_t, int32_t, uint8_t*, uint8_t*) {}).ok());
      ASSERT_TRUE(session->TakeBackExcerpt().ok());
    }
    n_unscored_shown = -1;
    ASSERT_TRUE(session->BeginRound({tokens.data() + 60, 20}, 0).ok());
    told.push_back(n_unscored_shown);
  }
  EXPECT_GE(told[0], 0);
  EXPECT_EQ(told[1], told[0]);
}

// Where the stream has gaps is checked before a saved session is believed.
TEST(Excerpt, GapsThatAreNoneAreRefused) {
  Tiny tiny("llama");
  const std::vector<int32_t> tokens = RandomTokens(60, tiny.model->config().n_vocab);
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec("streaming_llm")).value();
  options.pot_slots = kPot;
  options.excerpt_slots = kRoom;
  auto session = std::move(Session::Make(*tiny.model, *tiny.backend, options)).value();
  Session::AppendOptions excerpt;
  excerpt.excerpt = true;
  for (size_t i = 0; i < 2; ++i) {  // gaps [10, 15) and [25, 30)
    ASSERT_TRUE(session->Append({tokens.data() + 10 * i, 10}).ok());
    ASSERT_TRUE(session->Append({tokens.data() + 30, 5}, excerpt).ok());
    ASSERT_TRUE(session->TakeBackExcerpt().ok());
  }
  ASSERT_TRUE(session->Append({tokens.data() + 20, 5}).ok());
  std::vector<uint8_t> good;
  ASSERT_TRUE(session->Save(&good).ok());
  const int64_t gaps[] = {10, 15, 25, 30};
  const auto at = std::search(good.begin(), good.end(), reinterpret_cast<const uint8_t*>(gaps),
                              reinterpret_cast<const uint8_t*>(gaps) + sizeof(gaps));
  ASSERT_NE(at, good.end());
  auto restored = std::move(Session::Make(*tiny.model, *tiny.backend, options)).value();
  ASSERT_TRUE(restored->Restore(good).ok());
  for (const std::array<int64_t, 4>& wrong : {std::array<int64_t, 4>{10, 15, 14, 30},
                                              {-1, 15, 25, 30},
                                              {10, 9, 25, 30},
                                              {10, 15, 25, 24},
                                              {10, 15, 25, 36}}) {
    std::vector<uint8_t> bad = good;
    std::memcpy(&bad[static_cast<size_t>(at - good.begin())], wrong.data(), sizeof(wrong));
    EXPECT_EQ(restored->Restore(bad).code(), StatusCode::kInvalidArgument) << wrong[0] << " " << wrong[3];
  }
}

}  // namespace
}  // namespace weir
