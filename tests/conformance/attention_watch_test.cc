// SPDX-License-Identifier: Apache-2.0
// Where the newest token attends, as a trace says it: the attention that policies rank by, and nothing else changes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "kv/trace_reader.h"
#include "support/tiny.h"

namespace weir::testing {
namespace {

class AttentionWatchTest : public ::testing::Test {
 protected:
  void TearDown() override { std::remove(path_.c_str()); }

  std::unique_ptr<Session> Make(Tiny& tiny, const std::string& policy, int32_t pot, bool watch) {
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec(policy)).value();
    options.pot_slots = pot;
    options.watch_attention = watch;
    return std::move(Session::Make(*tiny.model, *tiny.backend, options)).value();
  }
  std::unique_ptr<TraceWriter> Open(const Session& session, int64_t n_rows) {
    TraceInfo info;
    info.pot = session.plan().pot;
    info.attention_rows = n_rows;
    return std::move(TraceWriter::Open(path_, info)).value();
  }
  std::vector<TraceAttention> ReadAll() {
    std::vector<TraceAttention> out;
    auto reader = std::move(TraceReader::Open(path_)).value();
    reader->OnAttention([&](const TraceAttention& line) { out.push_back(line); });
    TraceStep step;
    for (bool more = true; more;) {
      const auto next = reader->Next(&step);
      EXPECT_TRUE(next.ok()) << next.status().message();
      more = next.ok() && *next;
    }
    return out;
  }

  const std::string path_ = ::testing::TempDir() + "weir_attention_watch_" + std::to_string(getpid()) + ".jsonl";
};

// FastV's statistic at the end of a prompt is the last row's attention, mean over the heads of a layer.
TEST_F(AttentionWatchTest, IsWhatPoliciesRankBy) {
  // Shared KV heads; windows and soft caps; no rotation; latents.
  for (const char* model : {"llama", "gemma2", "opt", "deepseek2"}) {
    SCOPED_TRACE(model);
    Tiny tiny(model);
    auto session = Make(tiny, "fastv", 64, true);
    auto trace = Open(*session, 4);
    session->SetTrace(trace.get());
    const std::vector<int32_t> prompt = RandomTokens(50, tiny.model->config().n_vocab);
    Session::AppendOptions append;
    append.end_of_prompt = true;
    ASSERT_TRUE(session->Append(prompt, append).ok());
    ASSERT_TRUE(trace->Close(session->pot(), 50).ok());
    const std::vector<TraceAttention> rows = ReadAll();
    ASSERT_EQ(std::ssize(rows), session->pot().shape().n_layers);
    for (const TraceAttention& row : rows) {
      EXPECT_EQ(row.seq, 49);
      const std::span<const float> want = session->pot().scores(row.layer);
      ASSERT_EQ(row.scores.size(), 50u);
      for (size_t slot = 0; slot < 50; ++slot) EXPECT_NEAR(row.scores[slot], want[slot], 1e-3 * want[slot] + 1e-6);
    }
  }
}

TEST_F(AttentionWatchTest, WatchingChangesNothingAndIsBounded) {
  Tiny tiny("llama");
  for (const char* policy : {"full", "streaming_llm", "a_vl"}) {
    SCOPED_TRACE(policy);
    auto watched = Make(tiny, policy, 48, true), alone = Make(tiny, policy, 48, false);
    EXPECT_EQ(watched->plan().total_bytes - alone->plan().total_bytes > 0, true);
    auto trace = Open(*watched, 5);
    watched->SetTrace(trace.get());
    const std::vector<int32_t> tokens = RandomTokens(44, tiny.model->config().n_vocab);
    for (Session* session : {watched.get(), alone.get()}) {
      Session::AppendOptions append;
      append.end_of_prompt = true;
      ASSERT_TRUE(session->Append({tokens.data(), 30}, append).ok());
      append = {};
      append.generated = true;
      for (size_t i = 30; i < 44; ++i) ASSERT_TRUE(session->Append({&tokens[i], 1}, append).ok());
    }
    EXPECT_EQ(LogitsOf(*watched), LogitsOf(*alone));
    std::vector<uint8_t> a, b;
    ASSERT_TRUE(watched->Save(&a).ok());
    ASSERT_TRUE(alone->Save(&b).ok());
    EXPECT_EQ(a, b);
    EXPECT_LE(watched->ledger().peak_bytes(), watched->plan().total_bytes);
    ASSERT_TRUE(trace->Close(watched->pot(), 44).ok());
    const std::vector<TraceAttention> rows = ReadAll();
    ASSERT_EQ(std::ssize(rows), 5 * watched->pot().shape().n_layers);
    EXPECT_EQ(rows.front().seq, 29);
    EXPECT_EQ(rows.back().seq, 33);
    for (const TraceAttention& row : rows) {
      double sum = 0;
      for (const float score : row.scores) sum += score;
      EXPECT_NEAR(sum, 1, 1e-3);
    }
  }
}

// What is forgotten between two rows is named in between: a row's values are those of the slots that are left.
TEST_F(AttentionWatchTest, RowsFollowThePot) {
  Tiny tiny("llama");
  auto session = Make(tiny, "fastv", 32, true);
  auto trace = Open(*session, 1000);
  session->SetTrace(trace.get());
  Session::AppendOptions append;
  append.generated = true;
  for (const int32_t token : RandomTokens(100, tiny.model->config().n_vocab)) {
    ASSERT_TRUE(session->Append({&token, 1}, append).ok());
  }
  session->Reset();
  for (const int32_t token : RandomTokens(10, tiny.model->config().n_vocab)) {
    ASSERT_TRUE(session->Append({&token, 1}, append).ok());
  }
  ASSERT_TRUE(trace->Close(session->pot(), 10).ok());
  const std::vector<TraceAttention> rows = ReadAll();
  ASSERT_EQ(std::ssize(rows), 110 * session->pot().shape().n_layers);
  for (const TraceAttention& row : rows) {
    EXPECT_LE(row.scores.size(), 32u);
    EXPECT_EQ(row.slots.back().first + row.slots.back().count - 1, row.seq);
  }
  EXPECT_EQ(rows.back().seq, 9);
}

TEST_F(AttentionWatchTest, HeadsThatDecideForThemselvesAreRefused) {
  Tiny tiny("llama");
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec("h2o")).value();
  options.pot_slots = 32;
  options.watch_attention = true;
  const Status status = PlanSession(*tiny.model, *tiny.backend, options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("h2o"), std::string::npos);
}

}  // namespace
}  // namespace weir::testing
