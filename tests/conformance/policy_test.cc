// SPDX-License-Identifier: Apache-2.0
// Every policy of the folder, on tiny real models: the promises that no policy may break.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "engine/session.h"
#include "ops/kv_slots.h"
#include "support/tiny.h"

namespace weir {
namespace {

using testing::Held;
using testing::LogitsOf;
using testing::RandomTokens;
using testing::Tiny;

const std::vector<int32_t> kProbe = {7, 30, 2, 11};

// A policy with options, a type of storage, a model.
struct Case {
  std::string spec;
  DType type;
  std::string model;
};

class PolicyTest : public ::testing::TestWithParam<Case> {
 protected:
  PolicyTest() : spec_(std::move(ParsePolicySpec(GetParam().spec)).value()), needs_(Make()->Needs()) {}
  std::unique_ptr<Policy> Make() const { return std::move(spec_.Make()).value(); }

  // A pot of `pot` slots beside those for the probe.
  SessionOptions Options(int32_t pot, int32_t chunk) const {
    SessionOptions options;
    options.policy = spec_;
    options.pot_slots = pot + ProbeSlots();
    options.chunk_rows = chunk;
    options.k_type = options.v_type = GetParam().type;
    options.state_marks = 32;  // for models with a recurrent state: all chunks' starts
    if (needs_.evidence.rows == EvidenceRows::kProbe) options.probe = kProbe;
    return options;
  }
  int32_t ProbeSlots() const {
    if (needs_.evidence.rows != EvidenceRows::kProbe) return 0;
    return std::max(needs_.question_rows, static_cast<int32_t>(kProbe.size()));
  }
  std::unique_ptr<Session> MakeSession(int32_t pot, int32_t chunk) {
    auto session = Session::Make(*tiny_.model, *tiny_.backend, Options(pot, chunk));
    EXPECT_TRUE(session.ok()) << session.status().message();
    return session.ok() ? std::move(session).value() : nullptr;
  }
  std::vector<int32_t> Tokens(size_t n) const { return RandomTokens(n, tiny_.model->config().n_vocab); }

  // Everything that holds between two calls.
  void CheckPot(const Session& session, int32_t pot) const {
    EXPECT_EQ(session.ledger().peak_bytes(), session.plan().total_bytes);
    const PotShape& shape = session.pot().shape();
    int64_t n_all = 0;
    for (const std::vector<int64_t>& group : Held(session)) {
      n_all += std::ssize(group);
      EXPECT_LE(std::ssize(group), int64_t{pot} * shape.spread);
      EXPECT_EQ(std::adjacent_find(group.begin(), group.end(), std::greater_equal<int64_t>()), group.end());
    }
    EXPECT_LE(n_all, int64_t{pot} * shape.n_groups());
    const SessionCounters c = session.counters();
    EXPECT_EQ(c.kept + c.dropped, c.seen);
  }

  Tiny tiny_{GetParam().model};
  const PolicySpec spec_;
  const PolicyNeeds needs_;
};

TEST_P(PolicyTest, TheBudgetHoldsAtEveryMoment) {
  const std::vector<int32_t> tokens = Tokens(600);
  for (int32_t chunk : {1, 7, 16}) {
    auto session = MakeSession(48, chunk);
    int64_t overflow_at = -1;
    for (size_t at = 0; at < tokens.size(); at += 5) {
      const Status status = session->Append({tokens.data() + at, 5});
      if (!status.ok()) {
        EXPECT_EQ(status.code(), StatusCode::kOverBudget) << status.message();
        overflow_at = session->counters().seen;
        break;
      }
      CheckPot(*session, 48);
      EXPECT_EQ(session->counters().seen, static_cast<int64_t>(at) + 5);
    }
    if (needs_.evicts) {
      EXPECT_EQ(overflow_at, -1);
      EXPECT_GT(session->counters().dropped, 0);
    } else {
      EXPECT_GE(overflow_at, 40);
      EXPECT_LE(overflow_at, 48);
    }
  }
}

TEST_P(PolicyTest, RoundsHoldTheBudgetToo) {
  if (!needs_.evicts) GTEST_SKIP() << "policy never evicts";
  const std::vector<int32_t> tokens = Tokens(30 * 31);
  auto session = MakeSession(48, 8);
  Session::AppendOptions prompt, answer;
  prompt.end_of_prompt = true;
  answer.generated = true;
  const int32_t target = Make()->TargetAfterPrompt(48);
  for (size_t round = 0; round < 30; ++round) {
    const std::span<const int32_t> question(tokens.data() + round * 31, 19);
    ASSERT_TRUE(session->BeginRound(question, 12).ok());
    CheckPot(*session, 48);
    ASSERT_TRUE(session->Append(question, prompt).ok());
    CheckPot(*session, 48);
    if (target >= 0) {
      int64_t n_all = 0;
      for (const std::vector<int64_t>& group : Held(*session)) n_all += std::ssize(group);
      EXPECT_LE(n_all, int64_t{target} * session->pot().shape().n_groups());
    }
    for (size_t i = 19; i < 31; ++i) {
      ASSERT_TRUE(session->Append({tokens.data() + round * 31 + i, 1}, answer).ok());
      CheckPot(*session, 48);
    }
  }
}

TEST_P(PolicyTest, TheSmallestPotsWorkAlsoFullOfPins) {
  if (!needs_.evicts) GTEST_SKIP() << "policy never evicts";
  const std::vector<int32_t> tokens = Tokens(90);
  for (int32_t pot = needs_.min_slots; pot < needs_.min_slots + 6; ++pot) {
    auto session = MakeSession(pot, 0);
    ASSERT_NE(session, nullptr) << "pot of " << pot;
    ASSERT_TRUE(session->Append(tokens).ok()) << "pot of " << pot;
    CheckPot(*session, pot);
    // As many pins as leave the smallest pot beside them.
    const int32_t n_pins = pot - needs_.min_slots;
    auto crowded = MakeSession(pot, 0);
    Session::AppendOptions pinned;
    pinned.pinned = true;
    ASSERT_TRUE(crowded->Append({tokens.data(), static_cast<size_t>(n_pins)}, pinned).ok()) << "pot of " << pot;
    const Status status = crowded->Append({tokens.data() + n_pins, 60});
    ASSERT_TRUE(status.ok()) << "pot of " << pot << ": " << status.message();
    CheckPot(*crowded, pot);
    for (const std::vector<int64_t>& group : Held(*crowded)) {
      for (int64_t seq = 0; seq < n_pins; ++seq) EXPECT_EQ(group[static_cast<size_t>(seq)], seq);
    }
  }
  auto too_small = Session::Make(*tiny_.model, *tiny_.backend, Options(needs_.min_slots - 1, 0));
  EXPECT_FALSE(too_small.ok());
}

TEST_P(PolicyTest, APotThatNeverFillsEqualsTheFullCache) {
  const std::vector<int32_t> tokens = Tokens(60);
  auto session = MakeSession(64, 16);
  // Never evicts here, and positions are slots; `full` has them in the stream.
  SessionOptions same = Options(64 + ProbeSlots(), 16), full = same;
  same.policy = std::move(ParsePolicySpec(needs_.positions == Positions::kAbs ? "full" : "window")).value();
  full.policy = std::move(ParsePolicySpec("full")).value();
  auto reference = std::move(Session::Make(*tiny_.model, *tiny_.backend, same)).value();
  auto whole = std::move(Session::Make(*tiny_.model, *tiny_.backend, full)).value();
  Session::AppendOptions prompt;
  prompt.end_of_prompt = Make()->TargetAfterPrompt(64) < 0;
  for (Session* s : {session.get(), reference.get(), whole.get()}) {
    ASSERT_TRUE(s->BeginRound({tokens.data(), 60}, 4).ok());
    ASSERT_TRUE(s->Append({tokens.data(), 50}, prompt).ok());
    for (size_t i = 50; i < 60; ++i) ASSERT_TRUE(s->Append({tokens.data() + i, 1}).ok());
  }
  EXPECT_EQ(session->counters().selections, 0);
  const std::vector<float> logits = LogitsOf(*session), expected = LogitsOf(*whole);
  EXPECT_EQ(logits, LogitsOf(*reference));
  // Keys are rotated before (abs) or after (cache, reset) they are rounded to the storage type: equal up to that.
  // Models of random weights make much of that.
  const double bound = GetParam().type == DType::kF32    ? 1e-5
                       : GetParam().type == DType::kF16  ? 1e-2
                       : GetParam().type == DType::kQ8_0 ? 0.2
                                                         : 0.8;
  EXPECT_LE(testing::RelativeError(logits.data(), expected.data(), logits.size()), bound);
}

TEST_P(PolicyTest, PinnedTokensStay) {
  if (!needs_.evicts) GTEST_SKIP() << "policy never evicts";
  const std::vector<int32_t> tokens = Tokens(300);
  auto session = MakeSession(40, 8);
  ASSERT_TRUE(session->Append({tokens.data(), 20}).ok());
  Session::AppendOptions pinned;
  pinned.pinned = true;
  ASSERT_TRUE(session->Append({tokens.data() + 20, 6}, pinned).ok());
  ASSERT_TRUE(session->Append({tokens.data() + 26, 274}).ok());
  for (int32_t group = 0; group < session->pot().shape().n_groups(); ++group) {
    int64_t n = 0;
    for (const SlotMeta& slot : session->pot().meta(group)) n += slot.seq >= 20 && slot.seq < 26 && slot.pinned;
    EXPECT_EQ(n, 6) << "group " << group;
  }
}

TEST_P(PolicyTest, PinningTheWholePotIsAnErrorNotACrash) {
  auto session = MakeSession(40, 8);
  Session::AppendOptions pinned;
  pinned.pinned = true;
  EXPECT_EQ(session->Append(Tokens(80), pinned).code(), StatusCode::kOverBudget);
  CheckPot(*session, 40);
}

TEST_P(PolicyTest, ThreadsDoNotChangeTheChoice) {
  const std::vector<int32_t> tokens = Tokens(300);
  std::vector<std::vector<int64_t>> held;
  std::vector<float> logits;
  for (int threads : {1, 2, 4}) {
    Tiny tiny(GetParam().model, threads);
    auto session = std::move(Session::Make(*tiny.model, *tiny.backend, Options(40, 8))).value();
    const Status status = session->Append(tokens);
    EXPECT_EQ(status.ok(), needs_.evicts);
    if (threads == 1) {
      held = Held(*session);
      logits = LogitsOf(*session);
    }
    EXPECT_EQ(Held(*session), held) << threads << " threads";
    EXPECT_EQ(LogitsOf(*session), logits) << threads << " threads";
  }
}

// Whole distillations come when the pot is full to the last slot, so that their moments do not depend on the chunks.
// Kernels of few rows may round queries over transformed keys (ops/attention.h), those of many do not: with random
// weights that is enough for another choice.
TEST_P(PolicyTest, ChunksDoNotChangeDistillations) {
  if (needs_.positions != Positions::kReset) GTEST_SKIP() << "the moments of its selections follow the chunks";
  const std::vector<int32_t> tokens = Tokens(300);
  std::vector<std::vector<int64_t>> held;
  for (int32_t chunk : {1, 3, 8, 10}) {  // no more than a distillation frees
    if (chunk > 3 && IsTransformed(GetParam().type)) break;
    auto session = MakeSession(40, chunk);
    ASSERT_TRUE(session->Append(tokens).ok());
    if (chunk == 1) held = Held(*session);
    EXPECT_EQ(Held(*session), held) << "chunks of " << chunk;
  }
}

TEST_P(PolicyTest, ASavedSessionContinuesWithTheSameBytes) {
  const std::vector<int32_t> tokens = Tokens(260);
  Session::AppendOptions prompt;
  prompt.end_of_prompt = true;
  for (size_t at : {1, 39, 41, 130}) {
    auto session = MakeSession(40, 8), restored = MakeSession(40, 8);
    if (!needs_.evicts && at > 40) continue;
    // The other session has a past of its own, which must leave no trace.
    ASSERT_TRUE(restored->Append({tokens.data() + 200, 33}).ok());
    ASSERT_TRUE(session->Append({tokens.data(), at}, prompt).ok());
    ASSERT_TRUE(session->BeginRound({tokens.data() + at, 5}, 3).ok());
    LogitsOf(*session);  // as a program that answers does
    std::vector<uint8_t> bytes, again;
    ASSERT_TRUE(session->Save(&bytes).ok());
    const Status status = restored->Restore(bytes);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_TRUE(restored->Save(&again).ok());
    EXPECT_EQ(again, bytes);
    if (at % 2 == 0) {
      EXPECT_EQ(LogitsOf(*restored), LogitsOf(*session));
    }
    for (size_t i = at; i + 7 < tokens.size(); i += 7) {
      const Status a = session->Append({tokens.data() + i, 7}), b = restored->Append({tokens.data() + i, 7});
      EXPECT_EQ(a.code(), b.code());
      if (!a.ok()) break;
      ASSERT_EQ(Held(*restored), Held(*session)) << "saved after " << at << ", " << i + 7 << " read";
      ASSERT_EQ(LogitsOf(*restored), LogitsOf(*session)) << "saved after " << at << ", " << i + 7 << " read";
    }
    ASSERT_TRUE(session->Save(&bytes).ok());
    ASSERT_TRUE(restored->Save(&again).ok());
    EXPECT_EQ(again, bytes);
  }
}

// A session that reuses the prefix of an earlier prompt gives the same output as one that reads the whole new prompt.
TEST_P(PolicyTest, GoingOnFromAPrefixEqualsReadingItAgain) {
  const bool votes_at_end = needs_.evidence.rows == EvidenceRows::kLast;
  const size_t n_prompt = 70 + (votes_at_end ? static_cast<size_t>(needs_.evidence.n_last) : 0);
  const int32_t pot = static_cast<int32_t>(n_prompt) + 20;
  const std::vector<int32_t> tokens = Tokens(n_prompt + 60);
  const std::vector<int32_t> first(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n_prompt));
  Session::AppendOptions pin, end, answer;
  pin.pinned = end.end_of_prompt = answer.generated = true;
  const auto read = [&](Session& session, const std::vector<int32_t>& prompt, size_t n_pinned, size_t n_held) {
    ASSERT_TRUE(session.BeginRound(prompt, 8, static_cast<int64_t>(n_held)).ok());
    if (n_held < n_pinned) {
      ASSERT_TRUE(session.Append({prompt.data(), n_pinned}, pin).ok());
      n_held = n_pinned;
    }
    ASSERT_TRUE(session.Append(std::span(prompt).subspan(n_held), end).ok());
  };
  const auto write = [&](Session& session, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      LogitsOf(session);
      if (!session.Append({tokens.data() + n_prompt + i, 1}, answer).ok()) return;
    }
  };
  for (const size_t n_pinned : {0, 5, 8}) {
    auto session = MakeSession(pot, 8);
    for (const size_t n_same : {size_t{9}, size_t{40}, size_t{66}, n_prompt}) {
      SCOPED_TRACE(std::to_string(n_pinned) + " pinned, the first " + std::to_string(n_same) + " the same");
      std::vector<int32_t> other = first;
      for (size_t i = n_same; i < n_prompt; ++i) other[i] = (first[i] + 1) % tiny_.model->config().n_vocab;
      session->Reset();
      read(*session, first, n_pinned, 0);
      write(*session, 3);
      const int64_t n = session->RewindPoint(static_cast<int64_t>(n_same), static_cast<int64_t>(n_prompt));
      EXPECT_LT(n, static_cast<int64_t>(n_same));
      if (session->counters().selections > 0 || needs_.evidence.rows == EvidenceRows::kAll) {
        EXPECT_EQ(n, 0);
      } else if (n_same >= 40) {
        EXPECT_GE(n, 32);
      }
      session->Rewind(n);
      EXPECT_EQ(session->n_seen(), n);
      auto fresh = MakeSession(pot, 8);
      read(*session, other, n_pinned, static_cast<size_t>(n));
      read(*fresh, other, n_pinned, 0);
      std::vector<uint8_t> bytes, expected;
      ASSERT_TRUE(session->Save(&bytes).ok());
      ASSERT_TRUE(fresh->Save(&expected).ok());
      EXPECT_EQ(bytes, expected);
      write(*session, 60);  // beyond the pot
      write(*fresh, 60);
      EXPECT_EQ(Held(*session), Held(*fresh));
      EXPECT_EQ(LogitsOf(*session), LogitsOf(*fresh));
      EXPECT_EQ(session->counters().selections, fresh->counters().selections);
    }
  }
}

TEST_P(PolicyTest, OverflowErrorForbidsForgetting) {
  SessionOptions options = Options(40, 8);
  options.on_overflow = OnOverflow::kError;
  auto session = std::move(Session::Make(*tiny_.model, *tiny_.backend, options)).value();
  EXPECT_EQ(session->Append(Tokens(80)).code(), StatusCode::kOverBudget);
  EXPECT_EQ(session->counters().dropped, 0);
  EXPECT_EQ(session->counters().seen, 40);
}

std::vector<Case> Cases() {
  std::vector<Case> out;
  for (const PolicyInfo* info : AllPolicyInfos()) {
    for (DType type : {DType::kF32, DType::kF16}) out.push_back({info->name, type, "llama"});
    for (DType type : {DType::kQ8_0, DType::kQ5_1, DType::kQ4_0}) {
      out.push_back({info->name, type, "llama_wide_heads"});  // blocks need heads of 32
    }
    for (DType type : {DType::kF32, DType::kQ8_0, DType::kQ4_0}) out.push_back({info->name, type, "deepseek2"});
    for (const char* model :
         {"cohere2",       "deepseek2", "exaone4", "gemma2", "gemma3",       "gemma3n",  "gemma4",
          "gemma4_k_eq_v", "gpt_oss",   "gptneox", "lfm2",   "llama_window", "mistral3", "nemotron_h",
          "phi3",          "qwen",      "qwen3",   "qwen35", "qwen35moe",    "qwen3moe", "smollm3"}) {
      out.push_back({info->name, DType::kF16, model});
    }
  }
  for (const char* spec : {"adakv:capacity=24,window=4",
                           "adakv:floor=0,window=2",
                           "h2o:normalise=count,recent=4",
                           "h2o:reduce=sum,share=0.2,step=1",
                           "inf_mllm:capacity=30,recent=8,per_kv_head=on,b=0.1",
                           "inf_mllm:recent=4",
                           "infinipot:alpha=0",
                           "infinipot:alpha=1",
                           "infinipot:positions=abs",
                           "infinipot:rows=max,kernel=3",
                           "keydiff:recent=6",
                           "keyformer:noise=none,tau=0.5,tau_end=0.5,step=1",
                           "keyformer:seed=9,length=5,reduce=sum",
                           "pyramidkv:capacity=20,window=4,beta=5",
                           "pyramidkv:step=1,window=4,beta=3",
                           "random:draw=once,per=pot",
                           "random:per=layer",
                           "sirllm:decay=0.5,recent=3",
                           "snapkv:capacity=24,window=4",
                           "snapkv:positions=abs,window=4",
                           "streaming_llm:step=1",
                           "tova:step=1",
                           "weir:alpha=0",
                           "weir:alpha=1,z=-10,beta=1,saddle=0,saddles=always",
                           "weir:beta=0",
                           "weir:b=0.5,catalyst=\"What now?\",kernel=1"}) {
    out.push_back({spec, DType::kF16, "llama"});
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Folder, PolicyTest, ::testing::ValuesIn(Cases()), [](const auto& info) {
  std::string name = info.param.spec + "_" + InfoOf(info.param.type).name + "_" + info.param.model;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
});

}  // namespace
}  // namespace weir
