// SPDX-License-Identifier: Apache-2.0
// Questions aside, under every policy and for every kind of layer: they are answered from what the session holds, and
// leave no trace of themselves.
#include "engine/session/aside.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "engine/session/aside_room.h"
#include "support/tiny.h"

namespace weir {
namespace {

using testing::LogitsOf;
using testing::RandomTokens;
using testing::Tiny;

constexpr int32_t kPot = 64, kRoom = 24;

std::unique_ptr<Session> Make(Tiny& tiny, const std::string& policy, int32_t aside_slots, int32_t excerpt_slots = 0) {
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec(policy)).value();
  options.pot_slots = kPot;
  options.chunk_rows = 8;
  options.aside_slots = aside_slots;
  options.excerpt_slots = excerpt_slots;
  options.probe = {1, 2, 3};
  options.max_guesses = 3;
  options.always_guess = true;
  auto session = Session::Make(*tiny.model, *tiny.backend, options);
  EXPECT_TRUE(session.ok()) << session.status().message();
  return *std::move(session);
}

std::vector<uint8_t> Bytes(Session& session) {
  std::vector<uint8_t> out;
  EXPECT_TRUE(session.Save(&out).ok());
  return out;
}

struct Question {
  std::vector<int32_t> head;
  std::vector<std::vector<int32_t>> tails;
};

std::vector<std::vector<float>> Asked(Session& session, const Question& question) {
  std::vector<std::vector<float>> out;
  const Status status =
      session.AskAside(question.head, question.tails, [&](size_t tail, std::span<const float> logits) {
        EXPECT_EQ(tail, out.size());
        out.emplace_back(logits.begin(), logits.end());
      });
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

// The same by way of an excerpt, which another session holds.
std::vector<float> Expected(Session& other, Session& session, const Question& question, size_t tail) {
  EXPECT_TRUE(other.CopyFrom(session).ok());
  Session::AppendOptions excerpt;
  excerpt.excerpt = true;
  if (!question.head.empty()) {
    EXPECT_TRUE(other.Append(question.head, excerpt).ok());
  }
  EXPECT_TRUE(other.Append(question.tails[tail], excerpt).ok());
  std::vector<float> out = LogitsOf(other);
  EXPECT_TRUE(other.TakeBackExcerpt().ok());
  return out;
}

void Answer(std::span<const int32_t> tokens, Session& session) {
  Session::AppendOptions one;
  one.generated = true;
  for (const int32_t id : tokens) ASSERT_TRUE(session.Append({&id, 1}, one).ok());
}

class AsidePolicies : public ::testing::TestWithParam<const PolicyInfo*> {};

TEST_P(AsidePolicies, LeaveNoTraceInTheBytes) {
  Tiny tiny("llama");
  const std::vector<int32_t> text = RandomTokens(400, tiny.model->config().n_vocab);
  const std::span<const int32_t> all(text);
  const Question question = {{5, 6, 7}, {{8, 9}, {10}, {11, 12, 13, 14, 15, 16, 17, 18, 19}}};
  const bool forgets = std::move(std::move(ParsePolicySpec(GetParam()->name)).value().Make()).value()->Needs().evicts;
  auto plain = Make(tiny, GetParam()->name, kRoom), asked = Make(tiny, GetParam()->name, kRoom);
  EXPECT_EQ(asked->ledger().used_bytes(), asked->plan().total_bytes);
  const size_t n_steps = forgets ? 8 : 2;
  for (size_t step = 0; step < n_steps; ++step) {
    SCOPED_TRACE(step);
    Asked(*asked, question);  // the first time of an empty session
    for (Session* session : {plain.get(), asked.get()}) {
      ASSERT_TRUE(session->Append(all.subspan(step * 24, 19)).ok());
      if (step % 2 == 1) LogitsOf(*session);
    }
    EXPECT_EQ(Asked(*asked, question), Asked(*asked, question));
    EXPECT_EQ(Bytes(*plain), Bytes(*asked));
    Answer(all.subspan(step * 24 + 19, 3), *plain);
    for (size_t i = 0; i < 3; ++i) {
      Answer(all.subspan(step * 24 + 19 + i, 1), *asked);
      Asked(*asked, question);
    }
    EXPECT_EQ(Bytes(*plain), Bytes(*asked));
    EXPECT_EQ(LogitsOf(*plain), LogitsOf(*asked));
  }
}

std::vector<const PolicyInfo*> Policies() {
  const auto all = AllPolicyInfos();
  return {all.begin(), all.end()};
}
INSTANTIATE_TEST_SUITE_P(All, AsidePolicies, ::testing::ValuesIn(Policies()),
                         [](const auto& info) { return std::string(info.param->name); });

class AsideModels : public ::testing::TestWithParam<const char*> {};

TEST_P(AsideModels, AreAnsweredFromWhatIsHeld) {
  Tiny tiny(GetParam());
  const std::vector<int32_t> text = RandomTokens(200, tiny.model->config().n_vocab);
  const std::span<const int32_t> all(text);
  const Question question = {{5, 6, 7}, {{8, 9}, {10}, {11, 12, 13}}};
  auto session = Make(tiny, "streaming_llm", kRoom, kRoom), other = Make(tiny, "streaming_llm", kRoom, kRoom);
  auto plain = Make(tiny, "streaming_llm", kRoom, kRoom);
  for (size_t at = 0; at < 180; at += 18) {
    ASSERT_TRUE(session->Append(all.subspan(at, 18)).ok());
    ASSERT_TRUE(plain->Append(all.subspan(at, 18)).ok());
    const std::vector<std::vector<float>> got = Asked(*session, question);
    ASSERT_EQ(got.size(), question.tails.size());
    for (size_t tail = 0; tail < got.size(); ++tail) {
      const std::vector<float> expected = Expected(*other, *session, question, tail);
      for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(got[tail][i], expected[i], 2e-4) << at << " " << tail;
    }
    // Whatever else is asked.
    EXPECT_EQ(Asked(*session, {question.head, {question.tails[2]}})[0], got[2]);
  }
  const std::vector<float> a = LogitsOf(*session), b = LogitsOf(*plain);
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 2e-4);
}

INSTANTIATE_TEST_SUITE_P(All, AsideModels,
                         ::testing::Values("llama", "gemma3", "gpt_oss", "llama_window", "lfm2", "qwen3next",
                                           "falcon_h1", "deepseek2", "opt"),
                         [](const auto& info) { return std::string(info.param); });

// A question must be seen as a whole by its last token, also through a window in slots of its own.
TEST(Aside, TheRoomOfThePlanIsWhatMayBeAsked) {
  for (const char* name : {"llama", "gpt_oss", "gemma3"}) {
    SCOPED_TRACE(name);
    Tiny tiny(name);
    auto session = Make(tiny, "streaming_llm", kPot);
    const int32_t room = AsideRoom(session->plan());
    const bool apart = session->pot().windows() != nullptr;
    EXPECT_EQ(apart, std::string(name) != "llama");
    EXPECT_EQ(room, apart ? tiny.model->config().attention.window - 1 : kPot);
    ASSERT_TRUE(session->Append(RandomTokens(100, tiny.model->config().n_vocab)).ok());
    EXPECT_EQ(Asked(*session, {{}, {std::vector<int32_t>(static_cast<size_t>(room), 3)}}).size(), 1u);
    const std::vector<std::vector<int32_t>> longer = {std::vector<int32_t>(static_cast<size_t>(room) + 1, 3)};
    EXPECT_EQ(session->AskAside({}, longer, [](size_t, std::span<const float>) { FAIL() << "asked"; }).code(),
              StatusCode::kInvalidArgument);
  }
}

TEST(Aside, QuestionsThatAreImpossibleAreRefusedAndChangeNothing) {
  Tiny tiny("llama");
  const std::vector<int32_t> text = RandomTokens(100, tiny.model->config().n_vocab);
  auto session = Make(tiny, "window", kRoom, 4), without = Make(tiny, "window", 0, 4);
  const auto nothing = [](size_t, std::span<const float>) { FAIL() << "asked"; };
  ASSERT_TRUE(session->Append(text).ok());
  const std::vector<uint8_t> before = Bytes(*session);
  const std::vector<std::vector<int32_t>> tail = {{1}}, empty = {{}}, unknown = {{1, 1 << 30}};
  const std::vector<int32_t> long_head(kRoom, 3);
  EXPECT_EQ(without->AskAside({}, tail, nothing).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(session->AskAside({}, empty, nothing).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(session->AskAside({}, unknown, nothing).code(), StatusCode::kInvalidArgument);
  const Status too_long = session->AskAside(long_head, tail, nothing);
  EXPECT_EQ(too_long.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(too_long.message().find("25 tokens aside, where 24"), std::string::npos) << too_long.message();
  std::atomic<bool> stop = true;
  EXPECT_EQ(session->AskAside({}, tail, nothing, &stop).code(), StatusCode::kCancelled);
  Session::AppendOptions excerpt;
  excerpt.excerpt = true;
  EXPECT_EQ(Bytes(*session), before);
  ASSERT_TRUE(session->Append(std::span(text).first(2), excerpt).ok());
  EXPECT_EQ(session->AskAside({}, tail, nothing).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(session->TakeBackExcerpt().ok());
  EXPECT_EQ(Asked(*session, {{}, {{1}}}).size(), 1u);
}

}  // namespace
}  // namespace weir
