// SPDX-License-Identifier: Apache-2.0
// The scores of a prompt's tokens equal those that the session measures when it reads them.
#include "chat/score.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/rng.h"
#include "engine/session.h"
#include "support/loaded.h"

namespace weir {
namespace {

class ScoreTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ScoreTest, LogProbabilitiesAreTheModels) {
  std::unique_ptr<LoadedModel> model;
  ASSERT_NO_FATAL_FAILURE(testing::LoadTiny(GetParam(), &model));
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec("full")).value();
  options.pot_slots = 64;
  options.nll = true;
  auto session = Session::Make(model->model(), model->backend(), options);
  ASSERT_TRUE(session.ok()) << session.status().message();
  std::vector<int32_t> tokens;
  Rng rng(3);
  const auto n_vocab = static_cast<uint64_t>(model->model().config().n_vocab);
  for (int i = 0; i < 21; ++i) tokens.push_back(static_cast<int32_t>(rng.Below(n_vocab)));
  std::vector<float> hidden, nll(tokens.size());
  const TensorObserver observer = [&](const std::string& name, int64_t n_rows, int64_t n_cols, const float* data) {
    if (name == "final_norm") hidden.insert(hidden.end(), data, data + n_rows * n_cols);
  };
  Session::AppendOptions append;
  append.nll = nll.data();
  append.observer = &observer;
  ASSERT_TRUE((*session)->Append(tokens, append).ok());
  Ledger ledger;
  auto scorer = PromptScorer::Make(model->model(), model->backend(), ledger);
  ASSERT_TRUE(scorer.ok()) << scorer.status().message();
  std::vector<ScoredToken> scored;
  ASSERT_TRUE((*scorer)->Score(hidden.data(), {tokens.data() + 1, tokens.size() - 1}, 2, &scored).ok());
  ASSERT_EQ(scored.size(), tokens.size() - 1);
  for (size_t i = 0; i < scored.size(); ++i) {
    EXPECT_EQ(scored[i].id, tokens[i + 1]);
    EXPECT_NEAR(scored[i].logprob, -nll[i + 1], 1e-4) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ScoreTest, ::testing::Values("llama", "gemma2"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace weir
