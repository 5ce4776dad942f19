// Every policy of the folder, on a tiny real model: the promises that no policy may break.
#include <gtest/gtest.h>

#include <memory>

#include "base/rng.h"
#include "engine/session.h"
#include "support/golden.h"

namespace weir {
namespace {

struct Tiny {
  Ledger ledger;
  std::unique_ptr<Backend> backend = MakeCpuBackend(2);
  std::unique_ptr<Model> model;
  Tiny() {
    auto file = std::move(GgufFile::Open(testing::GoldenDir() + "llama.gguf")).value();
    model = std::move(LoadModel(*file, *backend, ledger)).value();
  }
};

std::vector<int32_t> RandomTokens(size_t n, int32_t n_vocab) {
  Rng rng(11);
  std::vector<int32_t> out(n);
  for (int32_t& id : out) id = static_cast<int32_t>(rng.Below(static_cast<uint64_t>(n_vocab)));
  return out;
}

class PolicyTest : public ::testing::TestWithParam<std::tuple<std::string, DType>> {
 protected:
  SessionOptions Options(int32_t pot, int32_t chunk) const {
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec(std::get<0>(GetParam()))).value();
    options.pot_slots = pot;
    options.chunk_rows = chunk;
    options.k_type = options.v_type = std::get<1>(GetParam());
    return options;
  }
  bool Evicts() const {
    return std::move(ParsePolicySpec(std::get<0>(GetParam()))->Make()).value()->Needs().evicts;
  }
  Tiny tiny_;
};

TEST_P(PolicyTest, TheBudgetHoldsAtEveryMoment) {
  const std::vector<int32_t> tokens = RandomTokens(600, tiny_.model->config().n_vocab);
  for (int32_t chunk : {1, 7, 16}) {
    auto session = std::move(Session::Make(*tiny_.model, *tiny_.backend, Options(48, chunk))).value();
    int64_t overflow_at = -1;
    for (size_t at = 0; at < tokens.size(); at += 5) {
      const Status status = session->Append({tokens.data() + at, 5});
      if (!status.ok()) {
        EXPECT_EQ(status.code(), StatusCode::kOverBudget);
        overflow_at = session->counters().seen;
        break;
      }
      EXPECT_LE(session->pot().n_used(), 48);
      EXPECT_EQ(session->ledger().peak_bytes(), session->plan().total_bytes);
      for (int32_t group = 0; group < session->pot().shape().n_groups(); ++group) {
        int64_t last = -1;
        for (const SlotMeta& slot : session->pot().meta(group)) {
          EXPECT_GT(slot.seq, last);
          last = slot.seq;
        }
      }
      const SessionCounters c = session->counters();
      EXPECT_EQ(c.seen, static_cast<int64_t>(at) + 5);
      EXPECT_EQ(c.kept + c.dropped, c.seen);
    }
    if (Evicts()) {
      EXPECT_EQ(overflow_at, -1);
      EXPECT_GT(session->counters().dropped, 0);
    } else {
      EXPECT_GE(overflow_at, 40);
      EXPECT_LE(overflow_at, 48);
    }
  }
}

TEST_P(PolicyTest, APotThatNeverFillsEqualsTheFullCache) {
  const std::vector<int32_t> tokens = RandomTokens(60, tiny_.model->config().n_vocab);
  auto session = std::move(Session::Make(*tiny_.model, *tiny_.backend, Options(64, 16))).value();
  SessionOptions full = Options(64, 16);
  full.policy = std::move(ParsePolicySpec("full")).value();
  auto reference = std::move(Session::Make(*tiny_.model, *tiny_.backend, full)).value();
  ASSERT_TRUE(session->Append(tokens).ok());
  ASSERT_TRUE(reference->Append(tokens).ok());
  auto a = session->Logits(), b = reference->Logits();
  ASSERT_TRUE(a.ok() && b.ok());
  const bool same_positions = session->plan().pot.positions == reference->plan().pot.positions;
  // Keys are rotated before (abs) or after (cache, reset) they are rounded to the storage type: equal up to that rounding.
  const double bound = same_positions ? 0 : std::get<1>(GetParam()) == DType::kF32 ? 1e-5 : std::get<1>(GetParam()) == DType::kF16 ? 1e-2 : 0.2;
  EXPECT_LE(testing::RelativeError(a->data(), b->data(), a->size()), bound);
}

TEST_P(PolicyTest, PinnedTokensStay) {
  if (!Evicts()) GTEST_SKIP() << "policy never evicts";
  const std::vector<int32_t> tokens = RandomTokens(300, tiny_.model->config().n_vocab);
  auto session = std::move(Session::Make(*tiny_.model, *tiny_.backend, Options(40, 8))).value();
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
  const std::vector<int32_t> tokens = RandomTokens(80, tiny_.model->config().n_vocab);
  auto session = std::move(Session::Make(*tiny_.model, *tiny_.backend, Options(40, 8))).value();
  Session::AppendOptions pinned;
  pinned.pinned = true;
  EXPECT_EQ(session->Append(tokens, pinned).code(), StatusCode::kOverBudget);
  EXPECT_LE(session->pot().n_used(), 40);
}

TEST_P(PolicyTest, ThreadsDoNotChangeTheChoice) {
  const std::vector<int32_t> tokens = RandomTokens(300, tiny_.model->config().n_vocab);
  std::vector<std::vector<int64_t>> kept;
  for (int threads : {1, 2, 4}) {
    tiny_.backend = MakeCpuBackend(threads);
    auto file = std::move(GgufFile::Open(testing::GoldenDir() + "llama.gguf")).value();
    tiny_.model = std::move(LoadModel(*file, *tiny_.backend, tiny_.ledger)).value();
    auto session = std::move(Session::Make(*tiny_.model, *tiny_.backend, Options(40, 8))).value();
    const Status status = session->Append(tokens);
    EXPECT_EQ(status.ok(), Evicts());
    kept.emplace_back();
    for (int32_t group = 0; group < session->pot().shape().n_groups(); ++group) {
      for (const SlotMeta& slot : session->pot().meta(group)) kept.back().push_back(slot.seq);
    }
    EXPECT_EQ(kept.back(), kept.front());
  }
}

TEST_P(PolicyTest, OverflowErrorForbidsForgetting) {
  const std::vector<int32_t> tokens = RandomTokens(80, tiny_.model->config().n_vocab);
  SessionOptions options = Options(40, 8);
  options.on_overflow = OnOverflow::kError;
  auto session = std::move(Session::Make(*tiny_.model, *tiny_.backend, options)).value();
  EXPECT_EQ(session->Append(tokens).code(), StatusCode::kOverBudget);
  EXPECT_EQ(session->counters().dropped, 0);
  EXPECT_EQ(session->counters().seen, 40);
}

std::vector<std::string> Names() {
  std::vector<std::string> out;
  for (const PolicyInfo* info : AllPolicyInfos()) out.push_back(info->name);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Folder, PolicyTest,
                         ::testing::Combine(::testing::ValuesIn(Names()),
                                            // Q8_0 needs heads of 32: the tiny model's are 16.
                                            ::testing::Values(DType::kF32, DType::kF16)),
                         [](const auto& info) { return std::get<0>(info.param) + "_" + InfoOf(std::get<1>(info.param)).name; });

}  // namespace
}  // namespace weir
