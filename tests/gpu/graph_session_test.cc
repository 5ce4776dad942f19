// SPDX-License-Identifier: Apache-2.0
// Whole models written token by token, each pass as one graph: the bytes of the answers are those of passes whose
// operations are launched one by one, and after the first tokens every pass is a replay.
#include <algorithm>

#include "backend/cuda/twin/watch.h"
#include "engine/session.h"
#include "engine/step_batch.h"
#include "gpu/devices.h"
#include "support/tiny.h"

namespace weir::testing {
namespace {

const int kWatched = twin::watch_one_in = 17;  // launches, of which one is

class GraphSessionTest : public ::testing::TestWithParam<const char*> {
 protected:
  // A device with a model, and sessions on it.
  struct Side {
    Ledger ledger;
    std::unique_ptr<Backend> backend;
    std::unique_ptr<Model> model;
    std::vector<std::unique_ptr<Session>> sessions;
  };
  void Open(const std::string& name) {
    for (Side* side : {&graphs_, &plain_}) {
      side->sessions.clear();
      side->model.reset();
      auto made = MakeDevice(GetParam(), side->ledger, side == &graphs_);
      if (!made.ok()) GTEST_SKIP() << made.status().message();
      side->backend = std::move(*made);
      auto file = std::move(GgufFile::Open(GoldenDir() + name + ".gguf")).value();
      side->model = std::move(LoadModel(*file, *side->backend, side->ledger)).value();
    }
    tokens_ = RandomTokens(300, graphs_.model->config().n_vocab);
  }
  void AddSession(const std::string& policy, int32_t pot, DType type = DType::kF32) {
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec(policy)).value();
    options.pot_slots = pot;
    options.chunk_rows = 16;
    options.k_type = options.v_type = type;
    const auto made = std::move(options.policy.Make()).value();
    if (made->Needs().evidence.rows == EvidenceRows::kProbe) options.probe = {3, 1, 4, 1, 5};
    for (Side* side : {&graphs_, &plain_}) {
      auto session = Session::Make(*side->model, *side->backend, options);
      ASSERT_TRUE(session.ok()) << session.status().message();
      side->sessions.push_back(std::move(*session));
    }
  }
  static Session::AppendOptions Writing() {
    Session::AppendOptions append;
    append.generated = true;
    return append;
  }
  // Reads a prompt, then writes n tokens, greedily: the same on both sides, to the bit.
  void Write(size_t which, size_t n_prompt, int n) {
    Session &mine = *graphs_.sessions[which], &theirs = *plain_.sessions[which];
    Session::AppendOptions prompt;
    prompt.end_of_prompt = true;
    ASSERT_TRUE(mine.Append({tokens_.data(), n_prompt}, prompt).ok());
    ASSERT_TRUE(theirs.Append({tokens_.data(), n_prompt}, prompt).ok());
    for (int i = 0; i < n; ++i) {
      int32_t next = -1, expected = -2;
      float logit = 0, expected_logit = 1;
      ASSERT_TRUE(mine.MostLikely({&next, 1}, {&logit, 1}).ok());
      ASSERT_TRUE(theirs.MostLikely({&expected, 1}, {&expected_logit, 1}).ok());
      ASSERT_EQ(next, expected) << i;
      ASSERT_EQ(logit, expected_logit) << i;
      if (i % 16 == 15) {
        ASSERT_EQ(LogitsOf(mine), LogitsOf(theirs)) << i;
      }
      ASSERT_TRUE(mine.Append({&next, 1}, Writing()).ok());
      ASSERT_TRUE(theirs.Append({&next, 1}, Writing()).ok());
    }
    EXPECT_EQ(Held(mine), Held(theirs));
    EXPECT_EQ(plain_.backend->pass_counts().replayed + plain_.backend->pass_counts().plain, 0);
    EXPECT_EQ(graphs_.backend->pass_counts().failed, 0);
  }
  PassCounts counts() const { return graphs_.backend->pass_counts(); }
  int64_t n_layers() const { return graphs_.model->config().n_layers; }

  Side graphs_, plain_;
  std::vector<int32_t> tokens_;
};

#define WEIR_OPEN(name)      \
  do {                       \
    Open(name);              \
    if (IsSkipped()) return; \
  } while (false)

TEST_P(GraphSessionTest, WithoutStatistics) {
  WEIR_OPEN("phi3");
  AddSession("streaming_llm:sinks=4", 48);
  Write(0, 42, 54);  // more than the pot has room for
  EXPECT_EQ(counts().plain, 1);
  EXPECT_EQ(counts().built, 1);
  EXPECT_EQ(counts().replayed, 52);
  // Of each layer: where keys and values go; and, since positions are slots, the queries' rotation and the attention.
  EXPECT_EQ(counts().updated, 52 * 3 * n_layers());
}

TEST_P(GraphSessionTest, WithStatisticsOfEveryRow) {
  WEIR_OPEN("phi3");
  AddSession("h2o", 48);
  Write(0, 42, 54);
  EXPECT_EQ(counts().plain, 1);
  EXPECT_EQ(counts().built, 1);
  EXPECT_EQ(counts().replayed, 52);
  EXPECT_EQ(counts().updated, 52 * 4 * n_layers());
}

// Attention shares a longer pot's slots out over the device: a pass of another shape, from the token on where it
// begins. Positions are those of the stream, so that the rotation of queries is no launch that changes.
TEST_P(GraphSessionTest, AsThePotFills) {
  WEIR_OPEN("phi3");
  AddSession("full", 160);
  Write(0, 12, 40);
  EXPECT_EQ(counts().built, 1);
  EXPECT_EQ(counts().replayed, 38);
  EXPECT_EQ(counts().updated, 38 * 2 * n_layers());
  Write(0, 12, 30);
  EXPECT_EQ(counts().plain, 2);
  EXPECT_EQ(counts().built, 2);
  EXPECT_EQ(counts().replayed, 38 + 28);
}

// Statistics of the last rows before the pot runs full, probes, heads of unlike numbers of slots whose regions are laid
// out anew: several shapes. a_vl looks at the scores of every layer before the next one runs, so that its passes are
// sent as they come.
TEST_P(GraphSessionTest, PoliciesOfManyShapes) {
  WEIR_OPEN("phi3");
  for (const char* policy : {"snapkv", "adakv", "infinipot", "a_vl"}) {
    SCOPED_TRACE(policy);
    graphs_.sessions.clear();
    plain_.sessions.clear();
    AddSession(policy, 64);
    const PassCounts before = counts();
    Write(0, 50, 32);
    if (std::string_view(policy) == "a_vl") {
      EXPECT_EQ(counts().built, before.built);
      EXPECT_GE(counts().plain - before.plain, 32);
    } else {
      EXPECT_GT(counts().replayed - before.replayed, 14);
    }
  }
}

TEST_P(GraphSessionTest, WindowsAndCacheTypes) {
  for (const char* name : {"gemma2", "opt"}) {
    SCOPED_TRACE(name);
    WEIR_OPEN(name);
    AddSession("streaming_llm", 48, DType::kF16);
    Write(0, 42, 30);
    EXPECT_EQ(counts().built, 1);
    EXPECT_EQ(counts().replayed, 28);
  }
}

TEST_P(GraphSessionTest, Batches) {
  WEIR_OPEN("phi3");
  for (int i = 0; i < 3; ++i) AddSession(i == 1 ? "window" : "streaming_llm", 32);
  std::unique_ptr<StepBatch> batches[2];
  Ledger ledger;
  int64_t side_idx = 0;
  for (Side* side : {&graphs_, &plain_}) {
    for (size_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(side->sessions[i]->Append({tokens_.data() + 20 * i, 9 + i}).ok());
    }
    const StepBatch::Shape shape = StepBatch::ShapeFor(side->sessions[0]->plan(), 3);
    batches[side_idx++] = std::move(StepBatch::Make(*side->model, *side->backend, shape, ledger)).value();
  }
  const PassCounts before = counts();
  for (int round = 0; round < 30; ++round) {
    // One of the three pauses for a while.
    const size_t n = round / 10 % 2 == 0 ? 3 : 2;
    side_idx = 0;
    for (Side* side : {&graphs_, &plain_}) {
      std::vector<StepBatch::Step> steps;
      for (size_t i = 0; i < n; ++i) {
        steps.push_back({side->sessions[i].get(), tokens_[100 + 3 * static_cast<size_t>(round) + i], 0, Status()});
      }
      batches[side_idx++]->Append(steps);
      for (const StepBatch::Step& step : steps) ASSERT_TRUE(step.status.ok()) << step.status.message();
    }
    for (size_t i = 0; i < n && round % 5 == 4; ++i) {
      ASSERT_EQ(LogitsOf(*graphs_.sessions[i]), LogitsOf(*plain_.sessions[i])) << round << ", " << i;
    }
  }
  EXPECT_EQ(counts().built - before.built, 2);
  EXPECT_EQ(counts().replayed - before.replayed, 26);
  EXPECT_EQ(counts().failed, 0);
}

WEIR_ON_DEVICES(GraphSessionTest);

}  // namespace
}  // namespace weir::testing
