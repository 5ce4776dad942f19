// SPDX-License-Identifier: Apache-2.0
// Sessions that expect no pictures: the text they keep and what follows from it are those of sessions that do.
#include <gtest/gtest.h>

#include <string>

#include "chat/session_file.h"
#include "support/tiny.h"

namespace weir {
namespace {

using testing::Held;
using testing::LogitsOf;
using testing::RandomTokens;
using testing::Tiny;

SessionOptions Options(const std::string& policy, bool pictures) {
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec(policy)).value();
  options.pot_slots = options.policy.info->name == std::string("full") ? 512 : 64;
  options.chunk_rows = 16;
  options.k_type = options.v_type = DType::kF32;
  options.probe = {5, 6, 7};
  options.pictures = pictures;
  return options;
}

std::unique_ptr<Session> Make(Tiny& m, const std::string& policy, bool pictures) {
  auto made = Session::Make(*m.model, *m.backend, Options(policy, pictures));
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(made).value();
}

// The slots of every head, whether sets are kept for each or for all.
std::vector<std::vector<int64_t>> OfHeads(const Session& session) {
  std::vector<std::vector<int64_t>> sets = Held(session);
  const PotShape& pot = session.plan().pot;
  if (sets.size() == 1) sets.resize(static_cast<size_t>(pot.n_heads_total()), std::vector<int64_t>(sets[0]));
  return sets;
}

std::vector<std::string> Policies() {
  std::vector<std::string> out = {"weir:beta=0",         "weir:frame_rows=0",           "weir:beta=0,frame_rows=0",
                                  "weir:saddles=always", "weir:catalyst=\"What now?\"", "weir:alpha=0"};
  for (const PolicyInfo* info : AllPolicyInfos()) out.emplace_back(info->name);
  return out;
}

TEST(NoPictures, TextIsKeptTheSame) {
  Tiny m("llama");
  const std::vector<int32_t> tokens = RandomTokens(400, m.model->config().n_vocab);
  for (const std::string& policy : Policies()) {
    SCOPED_TRACE(policy);
    const auto with = Make(m, policy, true), without = Make(m, policy, false);
    EXPECT_LE(without->plan().total_bytes, with->plan().total_bytes);
    for (Session* session : {with.get(), without.get()}) {
      for (size_t at = 0; at < tokens.size(); at += 50) {
        Session::AppendOptions prompt;
        prompt.end_of_prompt = true;
        ASSERT_TRUE(session->BeginRound({tokens.data() + at, 40}, 10).ok());
        ASSERT_TRUE(session->Append({tokens.data() + at, 40}, prompt).ok());
        for (size_t i = 40; i < 50; ++i)
          ASSERT_TRUE(session->Append({tokens.data() + at + i, 1}, {.generated = true}).ok());
      }
    }
    EXPECT_EQ(OfHeads(*with), OfHeads(*without));
    EXPECT_EQ(LogitsOf(*with), LogitsOf(*without));
  }
}

// What only pictures need takes nothing: of text, surprise is one number a token, for all heads.
TEST(NoPictures, OneSetForAllHeadsAndNoVotes) {
  Tiny m("llama");
  const auto own = Make(m, "weir", false);
  EXPECT_EQ(own->plan().pot.granularity, Granularity::kGlobal);
  EXPECT_FALSE(own->plan().runner.statistics);
  EXPECT_EQ(own->ledger().used_bytes(), own->plan().total_bytes);
  EXPECT_LT(own->plan().total_bytes, Make(m, "weir", true)->plan().total_bytes);
}

TEST(NoPictures, SomeComeAllTheSame) {
  Tiny m("llama");
  const size_t n_embd = static_cast<size_t>(m.model->config().n_embd);
  const std::vector<float> rows(20 * n_embd, 0.01f);
  const std::vector<int32_t> tokens = RandomTokens(100, m.model->config().n_vocab);
  for (const std::string& policy : Policies()) {
    SCOPED_TRACE(policy);
    const auto session = Make(m, policy, false);
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(session->Append({tokens.data(), 30}).ok());
      ASSERT_TRUE(session->AppendEmbeddings(rows, Modality::kVideo, {}).ok());
    }
    ASSERT_TRUE(session->Append(tokens).ok());
    for (const std::vector<int64_t>& held : Held(*session))
      EXPECT_LE(std::ssize(held), session->plan().pot.max_head_slots());
  }
}

// Bytes of one kind of session are not taken for the other's.
TEST(NoPictures, SavedBytesFitTheirOwnKind) {
  Tiny m("llama");
  const std::vector<int32_t> tokens = RandomTokens(200, m.model->config().n_vocab);
  const auto with = Make(m, "weir", true), without = Make(m, "weir", false);
  std::vector<uint8_t> saved;
  ASSERT_TRUE(without->Append(tokens).ok());
  ASSERT_TRUE(without->Save(&saved).ok());
  EXPECT_EQ(with->Restore(saved).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(with->CopyFrom(*without).ok());
  const auto again = Make(m, "weir", false);
  ASSERT_TRUE(again->Restore(saved).ok());
  EXPECT_EQ(LogitsOf(*again), LogitsOf(*without));
}

// A snapshot, of an earlier version too, is refused only where the pots differ.
TEST(NoPictures, SnapshotsFitWhereThePotsAreAlike) {
  Tiny m("llama");
  for (const std::string& policy : Policies()) {
    SCOPED_TRACE(policy);
    const auto with = Make(m, policy, true), without = Make(m, policy, false);
    std::vector<uint8_t> saved;
    ASSERT_TRUE(with->Append(RandomTokens(40, m.model->config().n_vocab)).ok());
    ASSERT_TRUE(with->Save(&saved).ok());
    const Status fits = SessionNote::Of(*with, OnOverflow::kEvict, "", "").CheckFits(*without, "");
    EXPECT_EQ(fits.ok(), without->Restore(saved).ok());
    EXPECT_EQ(fits.ok(), without->plan().pictures);
    if (!fits.ok()) EXPECT_NE(fits.message().find("--session"), std::string::npos) << fits.message();
  }
  EXPECT_FALSE(Make(m, "weir", false)->plan().pictures);
  EXPECT_TRUE(Make(m, "h2o", false)->plan().pictures);
}

}  // namespace
}  // namespace weir
