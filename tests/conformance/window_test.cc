// SPDX-License-Identifier: Apache-2.0
// Models whose layers have sliding windows, in pots that forget (docs/decisions/0007-windows-count-positions.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/session.h"
#include "support/tiny.h"

namespace weir {
namespace {

using testing::LogitsOf;
using testing::RelativeError;
using testing::Tiny;

SessionOptions OptionsOf(const char* policy, int32_t pot, bool windows_in_pot = false) {
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec(policy)).value();
  options.pot_slots = pot;
  options.chunk_rows = 8;
  options.k_type = options.v_type = DType::kF32;
  options.windows_in_pot = windows_in_pot;
  return options;
}

std::unique_ptr<Session> MakeSession(Tiny& tiny, const SessionOptions& options) {
  auto session = Session::Make(*tiny.model, *tiny.backend, options);
  EXPECT_TRUE(session.ok()) << session.status().message();
  return session.ok() ? std::move(session).value() : nullptr;
}
std::unique_ptr<Session> MakeSession(Tiny& tiny, const char* policy, int32_t pot, bool windows_in_pot = false) {
  return MakeSession(tiny, OptionsOf(policy, pot, windows_in_pot));
}

std::vector<uint8_t> BytesOf(Session& session) {
  std::vector<uint8_t> bytes;
  EXPECT_TRUE(session.Save(&bytes).ok());
  return bytes;
}

// Tokens that the layers with a window hold.
std::vector<int64_t> HeldByWindows(const Session& session) {
  std::vector<int64_t> out;
  for (const SlotMeta& slot : session.pot().windows()->meta(0)) out.push_back(slot.seq);
  return out;
}

// Every layer has a window of 20: a pot that always holds the newest 20 tokens loses nothing, whatever it drops.
TEST(WindowConformance, APotThatHoldsTheWindowLosesNothing) {
  for (const char* name : {"llama_window", "gpt_oss", "gemma2", "gemma3"}) {
    SCOPED_TRACE(name);
    Tiny tiny(name);
    // Of the other models, the layers that see everything get a window, too.
    AttentionLayout& layout = const_cast<ModelConfig&>(tiny.model->config()).attention;
    ASSERT_EQ(layout.window, 20);
    layout.window_layers.assign(static_cast<size_t>(layout.n_layers), true);
    const std::vector<int32_t> tokens = testing::RandomTokens(300, tiny.model->config().n_vocab);
    auto all = MakeSession(tiny, "full", 300), few = MakeSession(tiny, "window", 40);
    ASSERT_TRUE(all && few);
    for (size_t at = 0; at < tokens.size(); at += 3) {
      ASSERT_TRUE(all->Append({tokens.data() + at, 3}).ok());
      ASSERT_TRUE(few->Append({tokens.data() + at, 3}).ok());
      const std::vector<float> want = LogitsOf(*all), got = LogitsOf(*few);
      ASSERT_LT(RelativeError(got.data(), want.data(), want.size()), 1e-3) << "after " << at + 3 << " tokens";
    }
    EXPECT_GT(few->counters().dropped, 200);
  }
}

// The same pots make a difference to a model that has layers without a window, so the test above can fail.
TEST(WindowConformance, LayersWithoutAWindowMissWhatIsDropped) {
  Tiny tiny("gemma2");
  const std::vector<int32_t> tokens = testing::RandomTokens(120, tiny.model->config().n_vocab);
  auto all = MakeSession(tiny, "full", 120), few = MakeSession(tiny, "window", 40);
  ASSERT_TRUE(all && few);
  ASSERT_TRUE(all->Append(tokens).ok());
  ASSERT_TRUE(few->Append(tokens).ok());
  const std::vector<float> want = LogitsOf(*all), got = LogitsOf(*few);
  EXPECT_GT(RelativeError(got.data(), want.data(), want.size()), 1e-2);
}

// Scores follow the mask, so that a policy with a set for every layer drops what the layer cannot see.
TEST(WindowConformance, WhatAWindowHasLeftBehindGetsNoMoreAttention) {
  Tiny tiny("gemma3");
  const AttentionLayout& layout = tiny.model->config().attention;
  auto session = MakeSession(tiny, "h2o:reduce=mean", 64, /*windows_in_pot=*/true);
  ASSERT_NE(session, nullptr);
  const PotShape& shape = session->pot().shape();
  ASSERT_EQ(shape.granularity, Granularity::kPerHead);
  const std::vector<int32_t> tokens = testing::RandomTokens(48, tiny.model->config().n_vocab);
  const auto first_scores = [&] {
    std::vector<float> out;
    for (int32_t group = 0; group < shape.n_groups(); ++group) out.push_back(session->pot().scores(group)[0]);
    return out;
  };
  const size_t window = static_cast<size_t>(layout.window);
  ASSERT_LT(window, tokens.size());
  ASSERT_TRUE(session->Append({tokens.data(), window}).ok());
  const std::vector<float> before = first_scores();
  ASSERT_TRUE(session->Append(std::span(tokens).subspan(window)).ok());
  const std::vector<float> after = first_scores();
  int n_window = 0, n_global = 0;
  for (int32_t layer = 0; layer < layout.n_layers; ++layer) {
    for (int32_t head = 0; head < layout.n_kv_heads; ++head) {
      const int32_t group = shape.group_of(layer, head);
      if (layout.is_window(layer)) {
        EXPECT_EQ(after[group], before[group]) << "layer " << layer;
        ++n_window;
      } else {
        EXPECT_GT(after[group], before[group]) << "layer " << layer;
        ++n_global;
      }
      double sum = 0;
      for (float score : session->pot().scores(group)) sum += score;
      EXPECT_NEAR(sum, 48, 1e-3) << "layer " << layer;
    }
  }
  EXPECT_GT(n_window, 0);
  EXPECT_GT(n_global, 0);
}

// Pots where the layers with a window hold the newest tokens alone: 20 are seen, and 8 read at once
// (docs/decisions/0026-windows-hold-the-newest.md).
constexpr int32_t kWindow = 20, kRows = kWindow - 1 + 8;

class NewestTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::span<const int32_t> Tokens(size_t from, size_t n) const { return std::span(tokens_).subspan(from, n); }
  std::unique_ptr<Session> Make(const SessionOptions& options) { return MakeSession(tiny_, options); }

  Tiny tiny_{GetParam()};
  const std::vector<int32_t> tokens_ = testing::RandomTokens(700, tiny_.model->config().n_vocab);
};

// A pot that is large enough for the other layers gives what the full cache gives, whatever its windows have forgotten.
TEST_P(NewestTest, EqualsTheFullCache) {
  for (const char* policy : {"full", "window", "weir"}) {
    SCOPED_TRACE(policy);
    auto all = MakeSession(tiny_, "full", 400, /*windows_in_pot=*/true), few = MakeSession(tiny_, policy, 400);
    ASSERT_TRUE(all && few);
    ASSERT_EQ(all->pot().windows(), nullptr);
    ASSERT_NE(few->pot().windows(), nullptr);
    EXPECT_EQ(few->plan().pot.windows.n_slots, kRows);
    EXPECT_EQ(few->plan().pot.windows.window, kWindow);
    EXPECT_LT(few->plan().pot.n_layers, all->plan().pot.n_layers);
    size_t at = 0;
    for (const size_t n : {3, 20, 1, 1, 64, 1, 8, 100, 1, 40, 2, 59}) {
      ASSERT_TRUE(all->Append(Tokens(at, n)).ok());
      ASSERT_TRUE(few->Append(Tokens(at, n)).ok());
      at += n;
      const std::vector<float> want = LogitsOf(*all), got = LogitsOf(*few);
      ASSERT_LT(RelativeError(got.data(), want.data(), want.size()), 1e-3) << "after " << at << " tokens";
      EXPECT_LE(few->pot().windows()->n_used(), kRows);
    }
    for (int i = 0; i < 40; ++i, ++at) {
      ASSERT_TRUE(all->Append(Tokens(at, 1)).ok());
      ASSERT_TRUE(few->Append(Tokens(at, 1)).ok());
      const std::vector<float> want = LogitsOf(*all), got = LogitsOf(*few);
      ASSERT_LT(RelativeError(got.data(), want.data(), want.size()), 1e-3) << "after " << at + 1 << " tokens";
    }
    EXPECT_EQ(few->counters().dropped, 0);
    EXPECT_EQ(few->ledger().peak_bytes(), few->plan().total_bytes);
    const SessionPlan in_pot =
        std::move(PlanSession(*tiny_.model, *tiny_.backend, OptionsOf(policy, 400, true))).value();
    EXPECT_LT(few->plan().total_bytes, in_pot.total_bytes);
  }
}

// Under every policy windows hold the newest tokens, pinned or not, and no more.
TEST_P(NewestTest, WindowsHoldTheNewestWhateverThePolicyKeeps) {
  for (const PolicyInfo* info : AllPolicyInfos()) {
    SCOPED_TRACE(info->name);
    SessionOptions options = OptionsOf(info->name, 72);
    options.probe = {7, 8, 9};
    auto session = Make(options);
    ASSERT_NE(session, nullptr);
    const bool evicts = std::move(options.policy.Make()).value()->Needs().evicts;
    Session::AppendOptions pin, prompt, answer;
    pin.pinned = prompt.end_of_prompt = answer.generated = true;
    ASSERT_TRUE(session->Append(Tokens(0, 5), pin).ok());
    size_t at = 5;
    for (const size_t n : evicts ? std::vector<size_t>{50, 90, 3} : std::vector<size_t>{50}) {
      ASSERT_TRUE(session->Append(Tokens(at, n), prompt).ok());
      at += n;
      for (size_t i = 0; i < (evicts ? 30 : 10); ++i, ++at) {
        ASSERT_TRUE(session->Append(Tokens(at, 1), answer).ok());
        const std::vector<int64_t> held = HeldByWindows(*session);
        ASSERT_GE(std::ssize(held), kWindow);
        ASSERT_LE(std::ssize(held), kRows);
        for (size_t slot = 0; slot < held.size(); ++slot) {
          ASSERT_EQ(held[slot], session->n_seen() - std::ssize(held) + static_cast<int64_t>(slot));
        }
      }
    }
    for (const SlotMeta& slot : session->pot().windows()->meta(0)) EXPECT_FALSE(slot.pinned);
    for (const std::vector<int64_t>& group : testing::Held(*session)) {
      for (int64_t seq = 0; seq < 5; ++seq) EXPECT_EQ(group[static_cast<size_t>(seq)], seq);
    }
    EXPECT_EQ(session->ledger().peak_bytes(), session->plan().total_bytes);
  }
}

// What a first layer stores depends on tokens alone, so it is the same bytes under any policy.
TEST_P(NewestTest, ThePolicyDoesNotReachThem) {
  if (!tiny_.model->config().attention.is_window(0)) GTEST_SKIP() << "its first layer has no window";
  auto all = MakeSession(tiny_, "full", 700), few = MakeSession(tiny_, "streaming_llm", 40);
  for (size_t at = 0; at < 640; at += 8) {
    ASSERT_TRUE(all->Append(Tokens(at, 8)).ok());
    ASSERT_TRUE(few->Append(Tokens(at, 8)).ok());
  }
  EXPECT_GT(few->counters().dropped, 500);
  ASSERT_EQ(HeldByWindows(*few), HeldByWindows(*all));
  const Pot &a = *few->pot().windows(), &b = *all->pot().windows();
  for (int32_t head = 0; head < a.shape().n_kv_heads_of(0); ++head) {
    const auto n_bytes = static_cast<size_t>(a.n_used() * a.k_slot_bytes(0));
    EXPECT_EQ(std::memcmp(a.keys(0, head), b.keys(0, head), n_bytes), 0);
  }
}

TEST_P(NewestTest, ASavedAndACopiedSessionGoOnWithTheSameBytes) {
  for (const char* policy : {"streaming_llm", "h2o", "infinipot", "weir", "adakv"}) {
    SCOPED_TRACE(policy);
    SessionOptions options = OptionsOf(policy, 64);
    options.probe = {7, 8, 9};
    auto session = Make(options), restored = Make(options), copied = Make(options);
    ASSERT_TRUE(restored->Append(Tokens(300, 77)).ok());  // something to forget
    ASSERT_TRUE(copied->Append(Tokens(200, 33)).ok());
    ASSERT_TRUE(session->Append(Tokens(0, 250)).ok());
    const std::vector<uint8_t> bytes = BytesOf(*session);
    EXPECT_EQ(std::ssize(bytes), session->state_bytes());
    ASSERT_TRUE(restored->Restore(bytes).ok());
    ASSERT_TRUE(copied->CopyFrom(*session).ok());
    for (Session* one : {session.get(), restored.get(), copied.get()}) {
      ASSERT_TRUE(one->Append(Tokens(250, 130)).ok());
    }
    EXPECT_EQ(BytesOf(*restored), BytesOf(*session));
    EXPECT_EQ(BytesOf(*copied), BytesOf(*session));
    EXPECT_EQ(LogitsOf(*restored), LogitsOf(*session));
  }
}

// Bytes of a damaged file are refused, or are those of a session that goes on.
TEST_P(NewestTest, DamagedBytesDoNoHarm) {
  const SessionOptions options = OptionsOf("streaming_llm", 40);
  auto session = Make(options), other = Make(options), in_pot = Make(OptionsOf("streaming_llm", 40, true));
  ASSERT_TRUE(session->Append(Tokens(0, 100)).ok());
  const std::vector<uint8_t> bytes = BytesOf(*session);
  EXPECT_EQ(in_pot->Restore(bytes).code(), StatusCode::kInvalidArgument);
  // The windows' part is near the end: its header, and what it holds.
  const int64_t n_windows = session->pot().windows()->state_bytes();
  int n_refused = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    std::vector<uint8_t> bad = bytes;
    bad[bad.size() - static_cast<size_t>(n_windows) + static_cast<size_t>(i)] ^= 0x84;
    if (!other->Restore(bad).ok()) {
      ++n_refused;
      continue;
    }
    ASSERT_TRUE(other->Append(Tokens(0, 30)).ok());
  }
  EXPECT_GT(n_refused, 100);
  for (const int64_t cut : {int64_t{1}, n_windows - 60, n_windows}) {
    const std::span<const uint8_t> part(bytes.data(), bytes.size() - static_cast<size_t>(cut));
    EXPECT_FALSE(other->Restore(part).ok()) << cut;
  }
  ASSERT_TRUE(other->Restore(bytes).ok());
  EXPECT_EQ(BytesOf(*other), bytes);
}

// A prompt that begins like the last one goes on from where the windows still hold what is needed, or from a copy, and
// gives the bytes of reading all of it.
TEST_P(NewestTest, GoesBackToWhatIsHeldOrToAMark) {
  for (const int32_t marks : {0, 1, 3}) {
    SCOPED_TRACE(marks);
    SessionOptions options = OptionsOf("streaming_llm", 300);
    options.state_marks = marks;
    options.chunk_rows = 16;
    auto session = Make(options), whole = Make(options);
    EXPECT_EQ(session->ledger().used_bytes(), session->plan().total_bytes);
    const int64_t windows_bytes = Pot::KvBytes(session->plan().pot.window_pot());
    EXPECT_EQ(Pot::WindowBytes(session->plan().pot), (1 + marks) * windows_bytes);
    // Nothing has been forgotten yet.
    ASSERT_TRUE(session->Append(Tokens(0, 33)).ok());
    EXPECT_EQ(session->RewindPoint(30, 60), 16);
    session->Reset();
    ASSERT_TRUE(session->Append(Tokens(0, 100)).ok());  // chunks end at 16, 32 ... 96, 100
    Session::AppendOptions generated;
    generated.generated = true;
    ASSERT_TRUE(session->Append(Tokens(400, 3), generated).ok());

    std::vector<int32_t> next(tokens_.begin(), tokens_.begin() + 90);  // shares 90 tokens
    next.insert(next.end(), tokens_.begin() + 500, tokens_.begin() + 560);
    const int64_t n = session->RewindPoint(90, std::ssize(next));
    EXPECT_EQ(n, marks == 3 ? 80 : 0);  // 96 is beyond what is the same; one mark is at 96
    EXPECT_EQ(session->RewindPoint(100, 130), marks == 0 ? 0 : 96);
    session->Rewind(n);
    ASSERT_TRUE(session->Append({next.data() + n, next.size() - static_cast<size_t>(n)}).ok());
    ASSERT_TRUE(whole->Append(next).ok());
    EXPECT_EQ(LogitsOf(*session), LogitsOf(*whole));
    EXPECT_EQ(BytesOf(*session), BytesOf(*whole));
  }
}

// Rows that are read and taken back hide others in the meantime, and none afterwards. Room for them changes nothing
// while there are none.
TEST_P(NewestTest, AnExcerptIsTakenBackWhole) {
  SessionOptions options = OptionsOf("streaming_llm", 64);
  auto plain = Make(options);
  options.excerpt_slots = 48;
  auto session = Make(options);
  for (Session* one : {plain.get(), session.get()}) ASSERT_TRUE(one->Append(Tokens(0, 150)).ok());
  EXPECT_EQ(LogitsOf(*session), LogitsOf(*plain));
  EXPECT_EQ(HeldByWindows(*session), HeldByWindows(*plain));
  Session::AppendOptions excerpt, answer;
  excerpt.excerpt = answer.generated = true;
  for (const size_t n_answer : {size_t{0}, size_t{6}}) {
    ASSERT_TRUE(session->Append(Tokens(300, 24), excerpt).ok());
    ASSERT_TRUE(session->Append(Tokens(324, 23), excerpt).ok());
    for (size_t i = 0; i < n_answer; ++i) {
      ASSERT_TRUE(session->Append(Tokens(400 + i, 1), answer).ok());
      ASSERT_TRUE(plain->Append(Tokens(400 + i, 1), answer).ok());
    }
    const int64_t n_before = session->n_seen() - static_cast<int64_t>(n_answer) - 47;
    ASSERT_TRUE(session->TakeBackExcerpt().ok());
    // All that a coming row sees, without the excerpt.
    const std::vector<int64_t> held = HeldByWindows(*session);
    std::vector<int64_t> want;
    for (int64_t seq = session->n_seen(); std::ssize(want) < kWindow - 1;) {
      --seq;
      const bool gone =
          std::ranges::any_of(session->gaps(), [&](SeqRange gap) { return seq >= gap.begin && seq < gap.end; });
      if (!gone) want.insert(want.begin(), seq);
    }
    ASSERT_GE(held.size(), want.size());
    EXPECT_TRUE(std::ranges::equal(want, std::span(held).last(want.size())));
    EXPECT_LT(want.front(), n_before);
    if (n_answer > 0) continue;  // what was answered has seen the excerpt
    ASSERT_TRUE(session->Append(Tokens(150, 9)).ok());
    ASSERT_TRUE(plain->Append(Tokens(150, 9)).ok());
    const std::vector<float> got = LogitsOf(*session), same = LogitsOf(*plain);
    EXPECT_LT(RelativeError(got.data(), same.data(), same.size()), 1e-4);
  }
  EXPECT_EQ(session->ledger().peak_bytes(), session->plan().total_bytes);
}

// Keys and values that are put back belong to all layers; the windows would not have them.
TEST_P(NewestTest, NothingIsPutBackUnread) {
  SessionOptions options = OptionsOf("streaming_llm", 64);
  options.excerpt_slots = 16;
  auto session = Make(options);
  ASSERT_TRUE(session->Append(Tokens(0, 100)).ok());
  const std::vector<uint8_t> before = BytesOf(*session);
  const SlotMeta row = {.token_id = 5};
  const auto write = [](int32_t, int32_t, uint8_t*, uint8_t*) {};
  EXPECT_EQ(session->PutExcerpt({&row, 1}, write).code(), StatusCode::kUnsupported);
  EXPECT_EQ(BytesOf(*session), before);
}

TEST_P(NewestTest, ThePlanSaysWhatEachKindOfLayerHolds) {
  SessionOptions options = OptionsOf("streaming_llm", 200);
  options.state_marks = 2;
  options.excerpt_slots = 8;
  const SessionPlan plan = std::move(PlanSession(*tiny_.model, *tiny_.backend, options)).value();
  const int64_t of_windows = Pot::KvBytes(plan.pot.window_pot());
  EXPECT_EQ(plan.pot.windows.n_slots, kRows + 8);
  int64_t kv_bytes = 0;
  std::string lines;
  for (const PlanItem& item : plan.items) {
    if (item.tag == MemTag::kKv) kv_bytes += item.bytes;
    lines += item.what + "\n";
  }
  EXPECT_EQ(kv_bytes, Pot::KvBytes(plan.pot));
  EXPECT_GE(kv_bytes, 3 * of_windows);
  EXPECT_NE(lines.find("keys and values, 27 slots x "), std::string::npos) << lines;
  EXPECT_NE(lines.find(", windows of 20\nkeys and values of windows, 2 copies to go back to"), std::string::npos)
      << lines;
  // In a small pot, or if it is wished, they have the pot's slots.
  using Case = std::pair<int32_t, bool>;
  for (const auto& [pot, in_pot] : {Case{kRows - 1, false}, Case{kRows, false}, Case{200, true}}) {
    options = OptionsOf("streaming_llm", pot, in_pot);
    const SessionPlan other = std::move(PlanSession(*tiny_.model, *tiny_.backend, options)).value();
    EXPECT_EQ(other.pot.windows.n_slots, pot == kRows ? kRows : 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, NewestTest,
                         ::testing::Values("gemma2", "gemma3", "gemma3n", "gemma4", "gemma4_k_eq_v", "gpt_oss",
                                           "cohere2", "exaone4", "olmo3"),
                         [](const auto& info) { return std::string(info.param); });

// Where every layer has a window, the pot is all that the model remembers, and the policy's.
TEST(WindowConformance, AModelOfWindowsAloneKeepsWhatThePolicyKeeps) {
  Tiny tiny("llama_window");
  auto session = MakeSession(tiny, "streaming_llm", 200);
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(session->pot().windows(), nullptr);
  EXPECT_EQ(session->plan().pot.n_layers, tiny.model->config().attention.n_layers);
}

}  // namespace
}  // namespace weir
