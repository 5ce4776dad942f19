// SPDX-License-Identifier: Apache-2.0
// What a pot holds against global scoring, where the answer is known.
#include "eval/hits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "chat/probe.h"
#include "support/loaded.h"

namespace weir {
namespace {

class HitsTest : public testing::TinyLlamaTest {
 protected:
  std::unique_ptr<Session> MakeSession(const std::string& policy, int32_t n_slots) {
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec(policy)).value();
    options.nll = true;
    EXPECT_TRUE(PrepareProbe(tokenizer(), nullptr, std::nullopt, &options).ok());
    options.pot_slots = n_slots + static_cast<int32_t>(options.probe.size());
    auto session = Session::Make(model_->model(), model_->backend(), options);
    EXPECT_TRUE(session.ok()) << session.status().message();
    return session.ok() ? std::move(*session) : nullptr;
  }
  // The cells of a policy in a pot of 64 against global scoring by the catalyst alone.
  std::vector<Cell> CellsOf(const std::string& policy) {
    const std::unique_ptr<Session> session = MakeSession(policy, 64);
    const auto global = [&](int32_t n_tokens, int32_t n_keep) -> Result<std::unique_ptr<Session>> {
      wanted_.push_back({n_tokens, n_keep});
      const double ratio = static_cast<double>(n_keep) / n_tokens;
      return MakeSession("infinipot:alpha=0,ratio=" + std::to_string(ratio), n_tokens);
    };
    std::vector<Cell> cells;
    SuiteHooks hooks;
    hooks.report = [&](const Cell& cell) { cells.push_back(cell); };
    HitsOptions options;
    options.n = 2;
    options.n_cycles = 3;
    status_ = RunHits(*session, tokenizer(), global, options, nullptr, hooks);
    return cells;
  }
  static double More(const Cell& cell, const std::string& name) {
    for (const auto& [key, mean] : cell.more) {
      if (key == name) return mean.mean();
    }
    return std::nan("");
  }
  std::vector<std::pair<int32_t, int32_t>> wanted_;
  Status status_;
};

TEST_F(HitsTest, TheFirstDistillationIsGlobalScoring) {
  const std::vector<Cell> cells = CellsOf("infinipot:alpha=0");
  ASSERT_TRUE(status_.ok()) << status_.message();
  ASSERT_EQ(cells.size(), 3u);
  EXPECT_EQ(cells[0].score.mean(), 1);
  EXPECT_EQ(More(cells[0], "nll"), More(cells[0], "nll_global"));
  EXPECT_LT(cells[2].score.mean(), 1);
  for (size_t c = 0; c < 3; ++c) {
    EXPECT_EQ(cells[c].score.n(), 2);
    EXPECT_EQ(More(cells[c], "held"), 32);
    EXPECT_EQ(More(cells[c], "tokens_read"), 65.0 + 32 * static_cast<double>(c));
    EXPECT_GT(More(cells[c], "overlap"), 0);
    EXPECT_LE(More(cells[c], "overlap"), 1);
  }
  // The whole text up to the selection, and as many tokens as the pot kept.
  EXPECT_EQ(wanted_[1], (std::pair<int32_t, int32_t>(96, 32)));
}

TEST_F(HitsTest, AWindowHoldsTheNewest) {
  const std::vector<Cell> cells = CellsOf("window:step=32");
  ASSERT_TRUE(status_.ok()) << status_.message();
  ASSERT_EQ(cells.size(), 3u);
  EXPECT_EQ(More(cells[1], "held"), 32);
  EXPECT_EQ(More(cells[1], "overlap"), 1) << "all heads hold the same";
  EXPECT_LT(cells[1].score.mean(), 1);
  CellsOf("full");
  EXPECT_EQ(status_.code(), StatusCode::kOverBudget) << status_.message();
}

}  // namespace
}  // namespace weir
