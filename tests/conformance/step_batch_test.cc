// SPDX-License-Identifier: Apache-2.0
// Sessions that write together hold and say the same bytes as sessions that write alone.
#include "engine/step_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "support/tiny.h"

namespace weir::testing {
namespace {

constexpr int32_t kPot = 48;

SessionOptions OptionsOf(const std::string& policy, int32_t pot = kPot) {
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec(policy)).value();
  options.pot_slots = pot;
  options.probe = {3, 1, 4};
  return options;
}

// A session that has read a prompt of its own.
std::unique_ptr<Session> Read(Tiny& tiny, const SessionOptions& options, size_t n_prompt) {
  auto session = std::move(Session::Make(*tiny.model, *tiny.backend, options)).value();
  const std::vector<int32_t> prompt = RandomTokens(n_prompt, tiny.model->config().n_vocab);
  Session::AppendOptions append;
  append.end_of_prompt = true;
  EXPECT_TRUE(session->Append(prompt, append).ok());
  return session;
}

int32_t Best(Session& session) {
  const std::vector<float> logits = LogitsOf(session);
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::vector<uint8_t> Bytes(Session& session) {
  std::vector<uint8_t> out;
  EXPECT_TRUE(session.Save(&out).ok());
  return out;
}

class EveryModel : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryModel, TheSameBytesAsAlone) {
  Tiny tiny(GetParam());
  // Policies that collect nothing, rows of every kind, likelihoods and vectors; three kinds of positions.
  const std::vector<std::string> policies = {"streaming_llm", "h2o",       "tova", "snapkv", "sirllm",
                                             "keydiff",       "infinipot", "weir", "window", "streaming_llm"};
  std::vector<std::unique_ptr<Session>> alone, together;
  for (size_t i = 0; i < policies.size(); ++i) {
    SCOPED_TRACE(policies[i]);
    alone.push_back(Read(tiny, OptionsOf(policies[i]), 20 + 7 * i));
    together.push_back(Read(tiny, OptionsOf(policies[i]), 20 + 7 * i));
  }
  StepBatch::Shape shape{4, 0, kPot, true};
  for (const auto& session : together) {
    shape.max_slots = std::max(shape.max_slots, session->plan().runner.max_slots);
  }
  Ledger ledger;
  auto batch = std::move(StepBatch::Make(*tiny.model, *tiny.backend, shape, ledger)).value();
  EXPECT_EQ(ledger.used_bytes(), StepBatch::Bytes(*tiny.model, *tiny.backend, shape));
  for (int step = 0; step < 60; ++step) {  // more than a pot: everybody forgets
    std::vector<StepBatch::Step> steps;
    for (size_t i = 0; i < policies.size(); ++i) {
      const int32_t token = Best(*alone[i]);
      ASSERT_EQ(Best(*together[i]), token) << policies[i] << " at step " << step;
      Session::AppendOptions append;
      append.generated = true;
      ASSERT_TRUE(alone[i]->Append({&token, 1}, append).ok());
      (void)LogitsOf(*alone[i]);
      steps.push_back({together[i].get(), token, 0, Status()});
    }
    batch->Append(steps);
    for (size_t i = 0; i < policies.size(); ++i) {
      ASSERT_TRUE(steps[i].status.ok()) << steps[i].status.message();
      ASSERT_EQ(LogitsOf(*together[i]), LogitsOf(*alone[i])) << policies[i] << " at step " << step;
    }
  }
  for (size_t i = 0; i < policies.size(); ++i) EXPECT_EQ(Bytes(*together[i]), Bytes(*alone[i])) << policies[i];
  EXPECT_GT(batch->n_forwards(), 60);
  EXPECT_GT(batch->n_shared(), 2 * batch->n_forwards());
}

// Attention alone, and beside layers with a state of their own; several streams; latents.
INSTANTIATE_TEST_SUITE_P(StepBatch, EveryModel,
                         ::testing::Values("llama", "lfm2", "nemotron_h", "qwen35", "gemma3", "gemma3n", "gpt_oss",
                                           "deepseek2"),
                         [](const auto& info) { return std::string(info.param); });

TEST(StepBatch, WhoCannotGoOnHoldsNobodyUp) {
  Tiny tiny("llama");
  std::vector<std::unique_ptr<Session>> sessions;
  sessions.push_back(Read(tiny, OptionsOf("full"), kPot));  // full to the last slot
  sessions.push_back(Read(tiny, OptionsOf("streaming_llm"), 30));
  sessions.push_back(Read(tiny, OptionsOf("streaming_llm", 2 * kPot), 30));  // larger than the batch was made for
  sessions.push_back(Read(tiny, OptionsOf("streaming_llm"), 30));
  const StepBatch::Shape shape = StepBatch::ShapeFor(sessions[1]->plan(), 8);
  Ledger ledger;
  auto batch = std::move(StepBatch::Make(*tiny.model, *tiny.backend, shape, ledger)).value();
  std::vector<StepBatch::Step> steps;
  for (const auto& session : sessions) steps.push_back({session.get(), 5, 0, Status()});
  steps[3].token = -1;
  const std::vector<uint8_t> full = Bytes(*sessions[0]), wrong = Bytes(*sessions[3]);
  batch->Append(steps);
  EXPECT_EQ(steps[0].status.code(), StatusCode::kOverBudget);
  EXPECT_EQ(steps[3].status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Bytes(*sessions[0]), full);
  EXPECT_EQ(Bytes(*sessions[3]), wrong);
  for (const size_t i : {1, 2}) {
    EXPECT_TRUE(steps[i].status.ok()) << steps[i].status.message();
    EXPECT_EQ(sessions[i]->counters().seen, 31);
  }
  EXPECT_EQ(batch->n_forwards(), 0);  // one was left: nothing was shared
}

// A stream whose learned positions have run out ends alone.
TEST(StepBatch, TheEndOfATableIsOneSessionsEnd) {
  Tiny tiny("opt");
  const int32_t n_positions = tiny.model->config().attention.n_learned_positions;
  const SessionOptions options = OptionsOf("snapkv:positions=abs");
  std::vector<std::unique_ptr<Session>> together;
  for (const int32_t n : {30, n_positions, 41}) together.push_back(Read(tiny, options, static_cast<size_t>(n)));
  const auto alone = Read(tiny, options, 30);
  Ledger ledger;
  auto batch =
      std::move(StepBatch::Make(*tiny.model, *tiny.backend, StepBatch::ShapeFor(alone->plan(), 8), ledger)).value();
  const std::vector<uint8_t> ended = Bytes(*together[1]);
  std::vector<StepBatch::Step> steps;
  for (const auto& session : together) steps.push_back({session.get(), 5, 0, Status()});
  batch->Append(steps);
  EXPECT_EQ(steps[1].status.code(), StatusCode::kOverBudget);
  EXPECT_EQ(Bytes(*together[1]), ended);
  for (const size_t i : {0, 2}) EXPECT_TRUE(steps[i].status.ok()) << steps[i].status.message();
  EXPECT_EQ(batch->n_shared(), 2);
  Session::AppendOptions append;
  append.generated = true;
  ASSERT_TRUE(alone->Append({&steps[0].token, 1}, append).ok());
  EXPECT_EQ(LogitsOf(*together[0]), LogitsOf(*alone));
  EXPECT_EQ(Bytes(*together[0]), Bytes(*alone));
}

// A model with rotary factors for short and for long contexts: a pot within its trained context keeps the short ones,
// whatever the batch was made for, and takes them where heads share their slots as where they do not.
TEST(StepBatch, APotsLengthChoosesItsRotaryFactors) {
  Tiny tiny("phi3_longrope");
  const auto trained = static_cast<int32_t>(tiny.model->config().attention.rope.original_context);
  ASSERT_GE(trained, 16);
  const SessionOptions small = OptionsOf("streaming_llm", trained), large = OptionsOf("streaming_llm", 2 * trained);
  const auto alone = Read(tiny, small, 12), one = Read(tiny, small, 12), two = Read(tiny, small, 12);
  const auto spread = Read(tiny, OptionsOf("pyramidkv", trained), 12), longer = Read(tiny, large, 12);
  EXPECT_EQ(LogitsOf(*spread), LogitsOf(*alone));
  EXPECT_NE(LogitsOf(*longer), LogitsOf(*alone));
  Ledger ledger;
  auto batch =
      std::move(StepBatch::Make(*tiny.model, *tiny.backend, StepBatch::ShapeFor(longer->plan(), 4), ledger)).value();
  std::vector<StepBatch::Step> steps = {{one.get(), 5, 0, Status()}, {two.get(), 5, 0, Status()}};
  batch->Append(steps);
  Session::AppendOptions append;
  append.generated = true;
  ASSERT_TRUE(alone->Append({&steps[0].token, 1}, append).ok());
  EXPECT_EQ(LogitsOf(*one), LogitsOf(*alone));
  EXPECT_EQ(Bytes(*two), Bytes(*alone));
  EXPECT_EQ(batch->n_shared(), 0);
}

TEST(StepBatch, EveryRefusedAllocationIsAnAnswer) {
  Tiny tiny("llama");
  const StepBatch::Shape shape{8, kPot, kPot, true};
  const int64_t bytes = StepBatch::Bytes(*tiny.model, *tiny.backend, shape);
  Ledger exact(bytes), less(bytes - 1);
  EXPECT_TRUE(StepBatch::Make(*tiny.model, *tiny.backend, shape, exact).ok());
  EXPECT_EQ(StepBatch::Make(*tiny.model, *tiny.backend, shape, less).status().code(), StatusCode::kOverBudget);
  EXPECT_EQ(less.used_bytes(), 0);
}

}  // namespace
}  // namespace weir::testing
