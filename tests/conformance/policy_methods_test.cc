// SPDX-License-Identifier: Apache-2.0
// Facts that follow from single methods, seen through a session on a tiny model.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "engine/session.h"
#include "support/tiny.h"

namespace weir {
namespace {

using testing::Held;
using testing::LogitsOf;
using testing::RandomTokens;
using testing::Tiny;

const std::vector<int32_t> kProbe = {7, 30, 2, 11};

// With as many KV heads as query heads there is nothing to reduce: every reduction gives the same keep-sets.
TEST(PolicyReductions, DoNothingToGroupsOfOne) {
  Tiny tiny("llama_bias");
  ASSERT_EQ(tiny.model->config().attention.n_heads, tiny.model->config().attention.n_kv_heads);
  const std::vector<int32_t> tokens = RandomTokens(200, tiny.model->config().n_vocab);
  int n_policies = 0;
  for (const PolicyInfo* info : AllPolicyInfos()) {
    const auto option = std::find_if(info->options.begin(), info->options.end(),
                                     [](const PolicyOptionInfo& o) { return std::string("reduce") == o.key; });
    if (option == info->options.end()) continue;
    ++n_policies;
    std::vector<std::vector<int64_t>> held;
    for (const char* how : {"mean", "max", "sum"}) {
      auto spec = ParsePolicySpec(std::string(info->name) + ":reduce=" + how);
      if (!spec.ok()) continue;
      SessionOptions options;
      options.policy = std::move(spec).value();
      options.pot_slots = 60;
      options.chunk_rows = 8;
      options.probe = kProbe;
      auto session = std::move(Session::Make(*tiny.model, *tiny.backend, options)).value();
      ASSERT_TRUE(session->Append(tokens).ok());
      if (held.empty()) held = Held(*session);
      EXPECT_EQ(Held(*session), held) << info->name << " " << how;
    }
  }
  EXPECT_GE(n_policies, 5);
}

// A probe leaves only its votes: with a keep-set that does not use them, logits keep their bits.
class NewestAfterProbe : public Policy {
 public:
  explicit NewestAfterProbe(bool probe) : probe_(probe) {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.granularity = Granularity::kPerHead;
    needs.evidence.rows = probe_ ? EvidenceRows::kProbe : EvidenceRows::kNone;
    return needs;
  }
  int32_t TargetSlots(int32_t, int32_t) const override { return 12; }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    KeepHeadAndTail(view.slots, 1, n_keep, keep);
  }

 private:
  const bool probe_;
};

TEST(PolicyProbe, LeavesNothingBehind) {
  const PolicyInfo with = {"with_probe", "", "", {}, [](const PolicyOptions&) -> Result<std::unique_ptr<Policy>> {
                             return std::unique_ptr<Policy>(new NewestAfterProbe(true));
                           }};
  const PolicyInfo without = {"without_probe", "", "", {}, [](const PolicyOptions&) -> Result<std::unique_ptr<Policy>> {
                                return std::unique_ptr<Policy>(new NewestAfterProbe(false));
                              }};
  Tiny tiny("llama");
  const std::vector<int32_t> tokens = RandomTokens(200, tiny.model->config().n_vocab);
  std::vector<std::unique_ptr<Session>> sessions;
  for (const PolicyInfo* info : {&with, &without}) {
    SessionOptions options;
    options.policy.info = info;
    options.pot_slots = info == &with ? 36 : 32;
    options.chunk_rows = 8;
    if (info == &with) options.probe = kProbe;
    sessions.push_back(std::move(Session::Make(*tiny.model, *tiny.backend, options)).value());
  }
  for (size_t at = 0; at < tokens.size(); at += 8) {
    for (auto& session : sessions) ASSERT_TRUE(session->Append({tokens.data() + at, 8}).ok());
    ASSERT_EQ(Held(*sessions[0]), Held(*sessions[1]));
    ASSERT_EQ(LogitsOf(*sessions[0]), LogitsOf(*sessions[1]));
  }
  EXPECT_GT(sessions[0]->counters().selections, 5);
}

std::vector<float> ScoresOf(const Session& session) {
  std::vector<float> out;
  for (int32_t group = 0; group < session.pot().shape().n_groups(); ++group) {
    const auto scores = session.pot().scores(group);
    out.insert(out.end(), scores.begin(), scores.end());
  }
  return out;
}

std::unique_ptr<Session> Voting(const Tiny& tiny, const std::string& spec, int32_t chunk) {
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec(spec)).value();
  options.pot_slots = 60;
  options.chunk_rows = chunk;
  return std::move(Session::Make(*tiny.model, *tiny.backend, options)).value();
}

TEST(Keyformer, WithoutNoiseAndTemperatureVotesLikeH2o) {
  Tiny tiny("llama");
  const std::vector<int32_t> tokens = RandomTokens(50, tiny.model->config().n_vocab);
  auto plain = Voting(tiny, "h2o", 16), same = Voting(tiny, "keyformer:noise=none,tau_end=1", 16);
  ASSERT_TRUE(plain->Append(tokens).ok());
  ASSERT_TRUE(same->Append(tokens).ok());
  const std::vector<float> expected = ScoresOf(*plain), got = ScoresOf(*same);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-4f * expected[i] + 1e-6f) << i;
}

TEST(Keyformer, NoiseBelongsToTheSeedAndThePlaceInTheStream) {
  Tiny tiny("llama");
  const std::vector<int32_t> tokens = RandomTokens(50, tiny.model->config().n_vocab);
  const auto scores = [&](const std::string& spec, int32_t chunk) {
    auto session = Voting(tiny, spec, chunk);
    EXPECT_TRUE(session->Append(tokens).ok());
    return ScoresOf(*session);
  };
  const std::vector<float> once = scores("keyformer:seed=4", 16), pieces = scores("keyformer:seed=4", 7);
  EXPECT_EQ(scores("keyformer:seed=4", 16), once);
  EXPECT_NE(scores("keyformer:seed=5", 16), once);
  ASSERT_EQ(pieces.size(), once.size());
  for (size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(pieces[i], once[i], 1e-3f * once[i] + 1e-5f) << i;
}

// The temperature grows with an answer and falls back at the next prompt; a session saved in between goes on with it.
TEST(Keyformer, AnswersAreHotterTheLongerTheyAre) {
  Tiny tiny("llama");
  const std::vector<int32_t> tokens = RandomTokens(50, tiny.model->config().n_vocab);
  Session::AppendOptions answer;
  answer.generated = true;
  // Votes of the last token of 20, after so many of an answer.
  const auto last_votes = [&](const std::string& spec, size_t n_answer, bool restore) {
    auto session = Voting(tiny, spec, 16);
    EXPECT_TRUE(session->Append({tokens.data(), 20 - n_answer}).ok());
    for (size_t i = 20 - n_answer; i < 19; ++i) EXPECT_TRUE(session->Append({tokens.data() + i, 1}, answer).ok());
    std::vector<uint8_t> bytes;
    EXPECT_TRUE(session->Save(&bytes).ok());
    if (restore) {
      session = Voting(tiny, spec, 16);
      EXPECT_TRUE(session->Restore(bytes).ok());
    }
    std::vector<float> votes = ScoresOf(*session), after;
    EXPECT_TRUE(session->Append({tokens.data() + 19, 1}, answer).ok());
    after = ScoresOf(*session);
    const size_t n_groups = static_cast<size_t>(session->pot().shape().n_groups());
    for (size_t g = 0; g < n_groups; ++g) {
      for (size_t s = 0; s < 19; ++s) after[g * 20 + s] -= votes[g * 19 + s];
    }
    return after;
  };
  const auto largest = [](const std::vector<float>& votes) { return *std::max_element(votes.begin(), votes.end()); };
  const std::string cold = "keyformer:noise=none,tau=0.2,tau_end=0.2",
                    grows = "keyformer:noise=none,tau=0.2,tau_end=50,length=10";
  const std::vector<float> short_answer = last_votes(grows, 1, false), long_answer = last_votes(grows, 10, false);
  EXPECT_GT(largest(last_votes(cold, 10, false)), largest(short_answer));
  EXPECT_GT(largest(short_answer), 1.2f * largest(long_answer));
  for (const float vote : long_answer) EXPECT_NEAR(vote, 1 / 20.0f, 2e-2f);  // nearly equal at 50
  EXPECT_EQ(last_votes("keyformer:length=10", 10, true), last_votes("keyformer:length=10", 10, false));
}

// InfiniPot section 3.5: a distillation leaves |C| slots, whose positions are their places.
TEST(InfiniPot, DistilsToItsRatio) {
  Tiny tiny("llama");
  const std::vector<int32_t> tokens = RandomTokens(41, tiny.model->config().n_vocab);
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec("infinipot:ratio=0.25")).value();
  options.pot_slots = 44;
  options.chunk_rows = 16;
  options.probe = kProbe;
  auto session = std::move(Session::Make(*tiny.model, *tiny.backend, options)).value();
  ASSERT_TRUE(session->Append({tokens.data(), 40}).ok());
  EXPECT_EQ(session->counters().selections, 0);
  ASSERT_TRUE(session->Append({tokens.data() + 40, 1}).ok());
  EXPECT_EQ(session->counters().selections, 1);
  EXPECT_EQ(session->plan().pot.positions, Positions::kReset);
  for (const std::vector<int64_t>& group : Held(*session)) {
    ASSERT_EQ(group.size(), 11u);
    EXPECT_EQ(group.front(), 0) << "nothing predicted the first token";
    EXPECT_EQ(group.back(), 40);
  }
}

}  // namespace
}  // namespace weir
