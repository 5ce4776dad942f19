// SPDX-License-Identifier: Apache-2.0
// Sessions that read guesses ahead hold and say the same bytes as sessions that do not.
#include "engine/session/read_ahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/step_batch.h"
#include "support/tiny.h"

namespace weir::testing {
namespace {

constexpr int32_t kPot = 96, kGuesses = 5;

SessionOptions OptionsOf(const std::string& policy, int32_t max_guesses) {
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec(policy)).value();
  options.pot_slots = kPot;
  options.probe = {3, 1, 4};
  options.max_guesses = max_guesses;
  options.always_guess = true;
  return options;
}

std::unique_ptr<Session> Make(Tiny& tiny, const std::string& policy, int32_t max_guesses) {
  return std::move(Session::Make(*tiny.model, *tiny.backend, OptionsOf(policy, max_guesses))).value();
}

std::vector<uint8_t> Bytes(Session& session) {
  std::vector<uint8_t> out;
  EXPECT_TRUE(session.Save(&out).ok());
  return out;
}

void ReadPrompt(std::span<const int32_t> tokens, Session& session) {
  Session::AppendOptions append;
  append.end_of_prompt = true;
  ASSERT_TRUE(session.Append(tokens, append).ok());
}

void Write(int32_t token, Session& session) {
  Session::AppendOptions append;
  append.generated = true;
  ASSERT_TRUE(session.Append({&token, 1}, append).ok());
}

// A text that repeats itself, with a surprise now and then.
std::vector<int32_t> Text(const Tiny& tiny, int64_t n) {
  const int32_t n_vocab = tiny.model->config().n_vocab;
  const std::vector<int32_t> verse = RandomTokens(17, n_vocab);
  std::vector<int32_t> out;
  for (int64_t i = 0; i < n; ++i) {
    out.push_back(i % 11 == 10 ? static_cast<int32_t>((i * 7) % n_vocab)
                               : verse[static_cast<size_t>(i) % verse.size()]);
  }
  return out;
}

class EveryModel : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryModel, TheSameBytesAsWithoutGuesses) {
  Tiny tiny(GetParam());
  const std::vector<int32_t> text = Text(tiny, 240);
  for (const char* policy : {"streaming_llm", "window", "tova", "snapkv", "adakv", "sirllm", "keydiff", "infinipot",
                             "weir", "inf_mllm", "streaming_llm:positions=abs"}) {
    SCOPED_TRACE(policy);
    if (!ParsePolicySpec(policy).ok()) continue;
    auto plain = Make(tiny, policy, 0), ahead = Make(tiny, policy, kGuesses);
    EXPECT_EQ(ahead->plan().max_guesses, kGuesses);
    EXPECT_EQ(ahead->ledger().used_bytes(), ahead->plan().total_bytes);
    for (Session* session : {plain.get(), ahead.get()}) ReadPrompt(std::span(text).first(40), *session);
    for (size_t i = 40; i < text.size(); ++i) {
      Write(text[i], *plain);
      Write(text[i], *ahead);
      ASSERT_EQ(LogitsOf(*ahead), LogitsOf(*plain)) << "after token " << i;
      if (i % 23 == 0) {
        ASSERT_EQ(Bytes(*ahead), Bytes(*plain)) << "after token " << i;
      }
    }
    EXPECT_GT(plain->counters().selections, 1);
    EXPECT_EQ(plain->n_guessed(), 0);
    EXPECT_GT(ahead->n_guessed_right(), 40);
    EXPECT_LT(ahead->n_guessed_right(), ahead->n_guessed());
  }
}

// Latents, windows, soft caps, several streams, learned positions, layers that differ, experts, sinks, long factors.
INSTANTIATE_TEST_SUITE_P(ReadAhead, EveryModel,
                         ::testing::Values("llama", "deepseek2", "deepseek2_glm", "gemma2", "gemma3", "gemma3n",
                                           "gemma4", "opt", "qwen3moe", "gpt_oss", "phi3_longrope", "gptneox"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ReadAhead, NoneWhereARowCannotBeTakenBack) {
  Tiny hybrid("lfm2"), tiny("llama");
  EXPECT_EQ(Make(hybrid, "weir", kGuesses)->plan().max_guesses, 0);
  EXPECT_EQ(Make(tiny, "h2o", kGuesses)->plan().max_guesses, 0);
  EXPECT_EQ(Make(tiny, "weir", kGuesses)->plan().max_guesses, kGuesses);
}

// What was read ahead is forgotten wherever a stream goes on otherwise.
TEST(ReadAhead, OtherWaysToGoOn) {
  Tiny tiny("llama");
  const std::vector<int32_t> text = Text(tiny, 80);
  const auto start = [&](int32_t max_guesses) {
    auto session = Make(tiny, "streaming_llm", max_guesses);
    ReadPrompt(std::span(text).first(40), *session);
    for (size_t i = 40; i < 45; ++i) Write(text[i], *session);
    return session;
  };
  struct Way {
    const char* name;
    std::function<void(Session&)> go;
  };
  const Way ways[] = {
      {"a prompt", [&](Session& s) { ReadPrompt(std::span(text).subspan(45, 7), s); }},
      {"another stream", [&](Session& s) { s.Reset(), ReadPrompt(std::span(text).first(45), s); }},
      {"an earlier place",
       [&](Session& s) {
         const int64_t n = s.RewindPoint(40, 40);
         ASSERT_GT(n, 0);
         s.Rewind(n);
         ReadPrompt(std::span(text).subspan(static_cast<size_t>(n), 45 - static_cast<size_t>(n)), s);
       }},
      {"a copy", [&](Session& s) { ASSERT_TRUE(s.CopyFrom(*start(kGuesses)).ok()); }},
      {"a saved state", [&](Session& s) { ASSERT_TRUE(s.Restore(Bytes(*start(0))).ok()); }},
      {"a shared pass",
       [&](Session& s) {
         auto other = start(0);
         Ledger ledger;
         auto batch =
             std::move(StepBatch::Make(*tiny.model, *tiny.backend, StepBatch::ShapeFor(s.plan(), 2), ledger)).value();
         StepBatch::Step steps[] = {{&s, 9, 0, Status()}, {other.get(), 9, 0, Status()}};
         batch->Append(steps);
         EXPECT_EQ(batch->n_shared(), 2);
       }},
  };
  for (const Way& way : ways) {
    SCOPED_TRACE(way.name);
    auto plain = start(0), ahead = start(kGuesses);
    EXPECT_GT(ahead->n_guessed(), ahead->n_guessed_right());  // some are waiting
    way.go(*plain);
    way.go(*ahead);
    for (size_t i = 45; i < 70; ++i) {
      Write(text[i], *plain);
      Write(text[i], *ahead);
      ASSERT_EQ(LogitsOf(*ahead), LogitsOf(*plain)) << "after token " << i;
    }
    EXPECT_EQ(Bytes(*ahead), Bytes(*plain));
  }
}

// A session whose draft is the model itself, in a pot that overflows often.
SessionOptions DraftOptionsOf(Tiny& tiny, const std::string& policy, int32_t max_guesses) {
  SessionOptions options = OptionsOf(policy, max_guesses);
  options.draft = {.model = tiny.model.get(), .most = kGuesses, .sure = 0, .pot_slots = 64};
  return options;
}

class EveryDraft : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryDraft, TheSameBytesAsWithoutOne) {
  Tiny tiny(GetParam());
  const int32_t n_vocab = tiny.model->config().n_vocab;
  const std::vector<int32_t> prompt = RandomTokens(50, n_vocab);
  for (const auto& [policy, max_guesses] : {std::pair{"streaming_llm", 0}, {"weir", 3}, {"tova", 0}, {"full", 0}}) {
    SCOPED_TRACE(policy);
    SessionOptions with = DraftOptionsOf(tiny, policy, max_guesses), without = OptionsOf(policy, 0);
    const bool full = std::string_view(policy) == "full";
    if (full) with.pot_slots = without.pot_slots = 256, with.draft.pot_slots = 512;  // the draft holds the same tokens
    auto plain = std::move(Session::Make(*tiny.model, *tiny.backend, without)).value();
    auto ahead = std::move(Session::Make(*tiny.model, *tiny.backend, with)).value();
    EXPECT_EQ(ahead->ledger().used_bytes(), ahead->plan().total_bytes);
    for (Session* session : {plain.get(), ahead.get()}) ReadPrompt(prompt, *session);
    for (int32_t i = 0; i < 150; ++i) {
      const std::vector<float> logits = LogitsOf(*plain);
      ASSERT_EQ(LogitsOf(*ahead), logits) << "before token " << i;
      const auto best = static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
      const int32_t token = i % 9 == 8 ? (i * 7) % n_vocab : best;  // a surprise now and then
      Write(token, *plain);
      Write(token, *ahead);
      if (i % 23 == 0) {
        ASSERT_EQ(Bytes(*ahead), Bytes(*plain)) << "after token " << i;
      }
    }
    EXPECT_GT(ahead->n_drafted_right(), full ? 90 : 0);
    EXPECT_LE(ahead->n_drafted_right(), ahead->n_guessed_right());
    EXPECT_LT(ahead->n_guessed_right(), ahead->n_guessed());
    if (max_guesses == 0) {
      EXPECT_EQ(ahead->n_drafted(), ahead->n_guessed());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Draft, EveryDraft,
                         ::testing::Values("llama", "deepseek2", "gemma2", "gemma3", "gemma3n", "gemma4", "qwen3moe",
                                           "gpt_oss", "gptneox"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Draft, FollowsAStreamWhereverItGoes) {
  Tiny tiny("llama");
  const std::vector<int32_t> text = Text(tiny, 400);
  SessionOptions options = DraftOptionsOf(tiny, "streaming_llm", 0);
  auto plain = Make(tiny, "streaming_llm", 0);
  options.draft.pot_slots = 512;
  auto ahead = std::move(Session::Make(*tiny.model, *tiny.backend, options)).value();
  // `n_right`: guesses that come at least where the draft holds the same tokens; nothing is known where it does not.
  const auto both = [&](const std::function<void(Session&)>& go, int64_t n_right) {
    go(*plain);
    go(*ahead);
    n_right += ahead->n_drafted_right();
    for (size_t i = 0; i < 20; ++i) {
      const std::vector<float> logits = LogitsOf(*plain);
      ASSERT_EQ(LogitsOf(*ahead), logits) << "before token " << i;
      const auto best = static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
      const int32_t token = i % 7 == 6 ? text[i] : best;
      Write(token, *plain);
      Write(token, *ahead);
    }
    ASSERT_EQ(LogitsOf(*ahead), LogitsOf(*plain));
    ASSERT_EQ(Bytes(*ahead), Bytes(*plain));
    EXPECT_GE(ahead->n_drafted_right(), n_right);
  };
  std::vector<uint8_t> saved;
  both([&](Session& s) { ReadPrompt(std::span(text).first(40), s); }, 8);
  both([&](Session& s) { saved = Bytes(s); }, 8);
  both([&](Session& s) { ReadPrompt(std::span(text).first(390), s); }, 0);  // longer than what may wait
  both([&](Session& s) { ASSERT_TRUE(s.Restore(saved).ok()); }, 8);
  both([&](Session& s) { s.Reset(), ReadPrompt(std::span(text).first(1), s); }, 8);
  both([&](Session& s) { ReadPrompt(std::span(text).first(9), s); }, 8);
  both([&](Session& s) { ASSERT_TRUE(s.CopyFrom(*(&s == plain.get() ? ahead : plain)).ok()); }, 0);
}

TEST(Draft, RefusedWhereItCannotBe) {
  Tiny tiny("llama"), hybrid("lfm2");
  const auto error = [&](Tiny& target, const SessionOptions& options) {
    return std::string(Session::Make(*target.model, *target.backend, options).status().message());
  };
  EXPECT_NE(error(tiny, DraftOptionsOf(tiny, "h2o", 0)).find("policy h2o"), std::string::npos);
  EXPECT_NE(error(hybrid, DraftOptionsOf(hybrid, "weir", 0)).find("keep a state"), std::string::npos);
  EXPECT_EQ(Drafter::Check(*hybrid.model).code(), StatusCode::kUnsupported);
  SessionOptions options = DraftOptionsOf(tiny, "weir", 0);
  options.draft.pot_slots = 35;
  EXPECT_NE(error(tiny, options).find("36 to"), std::string::npos);
  options.draft.pot_slots = 36;
  EXPECT_EQ(error(tiny, options), "");
  options.draft.most = 65;
  EXPECT_NE(error(tiny, options).find("at most 64"), std::string::npos);
  // A budget counts the draft.
  options = DraftOptionsOf(tiny, "weir", 0);
  options.pot_slots = 0;
  options.budget_bytes = PlanSession(*tiny.model, *tiny.backend, options)->minimum_bytes;
  EXPECT_EQ(error(tiny, options), "");
  --options.budget_bytes;
  EXPECT_NE(error(tiny, options).find("too small"), std::string::npos);
  options.draft = {};
  EXPECT_EQ(error(tiny, options), "");
}

// A token that was read ahead needs no place in a shared pass.
TEST(ReadAhead, AloneInABatch) {
  Tiny tiny("llama");
  const std::vector<int32_t> text = Text(tiny, 90);
  auto plain = Make(tiny, "weir", 0), ahead = Make(tiny, "weir", kGuesses);
  for (Session* session : {plain.get(), ahead.get()}) ReadPrompt(std::span(text).first(40), *session);
  Ledger ledger;
  auto batch =
      std::move(StepBatch::Make(*tiny.model, *tiny.backend, StepBatch::ShapeFor(ahead->plan(), 2), ledger)).value();
  for (size_t i = 40; i < text.size(); ++i) {
    Write(text[i], *plain);
    StepBatch::Step step = {ahead.get(), text[i], 0, Status()};
    batch->Append({&step, 1});
    ASSERT_TRUE(step.status.ok()) << step.status.message();
    ASSERT_EQ(LogitsOf(*ahead), LogitsOf(*plain));
  }
  EXPECT_GT(ahead->n_guessed_right(), 15);
  EXPECT_EQ(Bytes(*ahead), Bytes(*plain));
}

// Beside the slots' metadata, the tokens that a draft's pot holds.
TEST(ReadAhead, ADraftsTokensArePlanned) {
  Tiny tiny("llama");
  const auto plan_of = [&](int32_t n_slots) {
    SessionOptions options = OptionsOf("streaming_llm", 0);
    options.draft = {.model = tiny.model.get(), .pot_slots = n_slots};
    auto plan = PlanSession(*tiny.model, *tiny.backend, options);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return *std::move(plan);
  };
  const auto bytes = [&](const SessionPlan& plan) {
    const int64_t others =
        Pot::MetaBytes(plan.draft.pot) + Runner::MetaBytes(*tiny.model, *tiny.backend, plan.draft.runner);
    for (const PlanItem& item : plan.items) {
      if (item.what == "draft: metadata of the slots, rotary tables") return item.bytes - others;
    }
    return int64_t{-1};
  };
  const SessionPlan small = plan_of(1024), large = plan_of(33 * 1024);
  EXPECT_GE(bytes(large) - bytes(small), 32 * 1024 * 4);
}

}  // namespace
}  // namespace weir::testing
