// SPDX-License-Identifier: Apache-2.0
// Models with a table of learned positions: what is added at the input is a slot of the pot, or the token's number in
// the stream, and never a row that the table does not have.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "engine/session.h"
#include "io/gguf.h"
#include "support/golden.h"

namespace weir {
namespace {

constexpr int32_t kPositions = 512;

class LearnedPositions : public ::testing::Test {
 protected:
  void SetUp() override {
    backend_ = MakeCpuBackend(2);
    file_ = std::move(GgufFile::Open(testing::GoldenDir() + "opt.gguf")).value();
    model_ = std::move(LoadModel(*file_, *backend_, ledger_)).value();
    ASSERT_EQ(model_->config().attention.n_learned_positions, kPositions);
  }

  SessionOptions Options(const char* policy, int32_t pot, int32_t chunk = 0) {
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec(policy)).value();
    options.pot_slots = pot;
    options.chunk_rows = chunk;
    return options;
  }

  // The position that was added to a row which entered layer 0 as `embd`; -1: none of the table.
  int32_t PositionOf(int32_t token, const float* embd) {
    const int64_t d = model_->config().n_embd;
    const float* tokens = reinterpret_cast<const float*>(file_->Tensor("token_embd.weight")->data) + token * d;
    const float* positions = reinterpret_cast<const float*>(file_->Tensor("position_embd.weight")->data);
    for (int32_t p = 0; p < kPositions; ++p) {
      bool same = true;
      for (int64_t i = 0; same && i < d; ++i) same = std::abs(tokens[i] + positions[p * d + i] - embd[i]) < 1e-5f;
      if (same) return p;
    }
    return -1;
  }

  Ledger ledger_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<Model> model_;
};

// Ten times the pot, beyond the table: a row's position is the slot it takes, whatever was evicted before.
TEST_F(LearnedPositions, AreSlotsOfThePot) {
  for (const char* policy : {"streaming_llm", "h2o", "infinipot", "adakv"}) {
    SCOPED_TRACE(policy);
    SessionOptions options = Options(policy, 64);
    options.probe = {3, 4, 5};
    auto session = std::move(Session::Make(*model_, *backend_, options)).value();
    std::vector<float> embd;
    const TensorObserver observer = [&](const std::string& name, int64_t, int64_t n_cols, const float* data) {
      if (name == "embd") embd.assign(data, data + n_cols);
    };
    Session::AppendOptions append;
    append.observer = &observer;
    append.generated = true;
    std::vector<int32_t> seen;
    for (int32_t i = 0; i < 640; ++i) {
      const int32_t token = 3 + i * 7 % 300;
      ASSERT_TRUE(session->Append({&token, 1}, append).ok());
      const int32_t pos = PositionOf(token, embd.data());
      ASSERT_GE(pos, 0) << "token " << i;
      EXPECT_EQ(pos, session->pot().shape().n_slots - session->pot().n_free() - 1) << "token " << i;
      seen.push_back(pos);
    }
    for (int32_t i = 0; i < 30; ++i) EXPECT_EQ(seen[i], i) << "nothing was evicted yet";
    EXPECT_LT(*std::max_element(seen.begin(), seen.end()), 64);
    EXPECT_EQ(session->counters().seen, 640);
  }
}

TEST_F(LearnedPositions, BoundThePot) {
  EXPECT_EQ(Session::Make(*model_, *backend_, Options("streaming_llm", kPositions + 1)).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_TRUE(Session::Make(*model_, *backend_, Options("streaming_llm", kPositions)).ok());
  EXPECT_EQ((*Session::Make(*model_, *backend_, Options("streaming_llm", 0)))->plan().pot.n_slots, kPositions);
}

// Positions of the stream end with the table: an error that says so, and nothing is read.
TEST_F(LearnedPositions, OfTheStreamEndWithTheTable) {
  auto session = std::move(Session::Make(*model_, *backend_, Options("snapkv:positions=abs", 64, 16))).value();
  const std::vector<int32_t> tokens(kPositions, 9);
  ASSERT_TRUE(session->Append(tokens).ok());
  std::vector<uint8_t> before, after;
  ASSERT_TRUE(session->Save(&before).ok());
  const Status status = session->Append({tokens.data(), 16});
  ASSERT_TRUE(session->Save(&after).ok());
  EXPECT_EQ(after, before) << "something was forgotten for tokens that were refused";
  EXPECT_EQ(status.code(), StatusCode::kOverBudget);
  EXPECT_NE(status.message().find("512"), std::string::npos) << status.message();
  EXPECT_EQ(session->counters().seen, kPositions);
}

}  // namespace
}  // namespace weir
