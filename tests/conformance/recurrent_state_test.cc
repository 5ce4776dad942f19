// SPDX-License-Identifier: Apache-2.0
// Models with layers that keep a state in place of keys and values: what a session may do to a stream of theirs.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "engine/session.h"
#include "support/golden.h"

namespace weir {
namespace {

class RecurrentStateTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto file = std::move(GgufFile::Open(testing::GoldenDir() + GetParam() + ".gguf")).value();
    model_ = std::move(LoadModel(*file, *backend_, ledger_)).value();
    Rng rng(5);
    for (int i = 0; i < 600; ++i) {
      tokens_.push_back(static_cast<int32_t>(rng.Below(static_cast<uint64_t>(model_->config().n_vocab))));
    }
  }
  SessionOptions Options(const char* policy, int32_t pot) const {
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec(policy)).value();
    options.pot_slots = pot;
    options.chunk_rows = 16;
    return options;
  }
  std::unique_ptr<Session> Make(const SessionOptions& options) {
    return std::move(Session::Make(*model_, *backend_, options)).value();
  }
  std::vector<float> LogitsOf(Session& session) {
    const auto logits = session.Logits();
    return {logits->begin(), logits->end()};
  }
  std::vector<uint8_t> BytesOf(Session& session) {
    std::vector<uint8_t> bytes;
    EXPECT_TRUE(session.Save(&bytes).ok());
    return bytes;
  }

  Ledger ledger_;
  std::unique_ptr<Backend> backend_ = MakeCpuBackend(2);
  std::unique_ptr<Model> model_;
  std::vector<int32_t> tokens_;
};

TEST_P(RecurrentStateTest, ThePlanCountsTheStateAndItsCopies) {
  for (const int32_t marks : {0, 1, 3}) {
    SessionOptions options = Options("streaming_llm", 64);
    options.state_marks = marks;
    auto session = Make(options);
    const int64_t one = model_->config().attention.n_state * 4;
    EXPECT_EQ(Pot::StateBytes(session->plan().pot), PageRound(one) + PageRound(one * marks));
    EXPECT_EQ(session->ledger().used_bytes(), session->plan().total_bytes);
    ASSERT_TRUE(session->Append(tokens_).ok());
    EXPECT_EQ(session->ledger().peak_bytes(), session->plan().total_bytes);
  }
}

TEST_P(RecurrentStateTest, ASavedAndACopiedSessionGoOnWithTheSameBytes) {
  for (const char* policy : {"streaming_llm", "h2o", "infinipot", "weir", "adakv"}) {
    SCOPED_TRACE(policy);
    SessionOptions options = Options(policy, 64);
    options.max_probe = 4;
    options.probe = {7, 8, 9};
    auto session = Make(options), restored = Make(options), copied = Make(options);
    ASSERT_TRUE(restored->Append({tokens_.data() + 300, 77}).ok());  // something to forget
    ASSERT_TRUE(copied->Append({tokens_.data() + 200, 33}).ok());
    ASSERT_TRUE(session->Append({tokens_.data(), 250}).ok());
    const std::vector<uint8_t> bytes = BytesOf(*session);
    EXPECT_EQ(std::ssize(bytes), session->state_bytes());
    ASSERT_TRUE(restored->Restore(bytes).ok());
    ASSERT_TRUE(copied->CopyFrom(*session).ok());
    for (Session* one : {session.get(), restored.get(), copied.get()}) {
      ASSERT_TRUE(one->Append({tokens_.data() + 250, 130}).ok());
    }
    EXPECT_EQ(BytesOf(*restored), BytesOf(*session));
    EXPECT_EQ(BytesOf(*copied), BytesOf(*session));
    EXPECT_EQ(LogitsOf(*restored), LogitsOf(*session));
  }
}

TEST_P(RecurrentStateTest, AResetSessionIsAsNew) {
  auto session = Make(Options("streaming_llm", 64)), fresh = Make(Options("streaming_llm", 64));
  ASSERT_TRUE(session->Append({tokens_.data(), 200}).ok());
  session->Reset();
  ASSERT_TRUE(session->Append({tokens_.data() + 50, 40}).ok());
  ASSERT_TRUE(fresh->Append({tokens_.data() + 50, 40}).ok());
  EXPECT_EQ(BytesOf(*session), BytesOf(*fresh));
}

// The rows of a probe are read on top of the pot and removed again. In the first layer a state depends on nothing but
// the tokens that stay read, so that it is the same whether a policy has a probe or not.
TEST_P(RecurrentStateTest, AProbeLeavesNoTrace) {
  SessionOptions with_probe = Options("infinipot", 64);
  with_probe.probe = {7, 8, 9, 10};
  auto probed = Make(with_probe), plain = Make(Options("streaming_llm", 64));
  for (Session* one : {probed.get(), plain.get()}) ASSERT_TRUE(one->Append({tokens_.data(), 400}).ok());
  EXPECT_GT(probed->counters().selections, 2);
  // Chunks differ under the two policies, and with them the last bits of what a row multiplies.
  const float* const a = probed->pot().state().data();
  const float* const b = plain->pot().state().data();
  const auto near = [&](int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      if (std::abs(a[i] - b[i]) > 1e-3f * (1 + std::abs(b[i]))) return false;
    }
    return true;
  };
  EXPECT_TRUE(near(2 * 32));  // the first layer's last rows
}

// What recall reads to look something up, and takes back before anything else is read, leaves no trace. What an answer
// was given stays in the state.
TEST_P(RecurrentStateTest, ALookUpLeavesNoTrace) {
  SessionOptions options = Options("streaming_llm", 64);
  options.excerpt_slots = 32;
  auto session = Make(options);
  ASSERT_TRUE(session->Append({tokens_.data(), 100}).ok());
  const auto state = [&] {
    const RecurrentState& kept = session->pot().state();
    return std::vector<float>(kept.data(), kept.data() + kept.n_floats());
  };
  const std::vector<float> before = state();
  Session::AppendOptions excerpt;
  excerpt.excerpt = true;
  for (int look_up = 0; look_up < 2; ++look_up) {
    ASSERT_TRUE(session->Append({tokens_.data() + 200, 20}, excerpt).ok());
    ASSERT_TRUE(session->Append({tokens_.data() + 220, 9}, excerpt).ok());
    EXPECT_NE(state(), before);
    ASSERT_TRUE(session->TakeBackExcerpt().ok());
    EXPECT_EQ(state(), before);
  }
  ASSERT_TRUE(session->Append({tokens_.data() + 200, 20}, excerpt).ok());
  ASSERT_TRUE(session->Append({tokens_.data() + 300, 5}).ok());
  const std::vector<float> asked = state();
  ASSERT_TRUE(session->TakeBackExcerpt().ok());
  EXPECT_EQ(state(), asked);
}

// Conversations that share pinned words go back to their end, however long the last one was.
TEST_P(RecurrentStateTest, TheEndOfPinnedWordsIsKept) {
  SessionOptions options = Options("streaming_llm", 300);
  options.state_marks = 3;
  auto session = Make(options), whole = Make(options);
  Session::AppendOptions pinned;
  pinned.pinned = true;
  const std::span<const int32_t> shared(tokens_.data(), 40);
  ASSERT_TRUE(session->Append(shared, pinned).ok());
  ASSERT_TRUE(session->Append({tokens_.data() + 100, 180}).ok());
  EXPECT_EQ(session->RewindPoint(40 + 3, 40 + 60), 40);
  session->Rewind(40);
  ASSERT_TRUE(session->Append({tokens_.data() + 400, 60}).ok());
  ASSERT_TRUE(whole->Append(shared, pinned).ok());
  ASSERT_TRUE(whole->Append({tokens_.data() + 400, 60}).ok());
  EXPECT_EQ(BytesOf(*session), BytesOf(*whole));
}

// Keys and values that are put back were not read: the state would know nothing of them.
TEST_P(RecurrentStateTest, NothingIsPutBackUnread) {
  SessionOptions options = Options("streaming_llm", 64);
  options.excerpt_slots = 16;
  auto session = Make(options);
  ASSERT_TRUE(session->Append({tokens_.data(), 100}).ok());
  const std::vector<uint8_t> before = BytesOf(*session);
  const SlotMeta row = {.token_id = 5};
  const Status status = session->PutExcerpt({&row, 1}, [](int32_t, int32_t, uint8_t*, uint8_t*) {});
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(BytesOf(*session), before);
}

// A prompt that begins like the last one goes back to a mark, and gives the bytes of reading all of it.
TEST_P(RecurrentStateTest, RewindsToMarksOnly) {
  for (const int32_t marks : {0, 1, 3}) {
    SCOPED_TRACE(marks);
    SessionOptions options = Options("streaming_llm", 300);
    options.state_marks = marks;
    auto session = Make(options), whole = Make(options);
    ASSERT_TRUE(session->Append({tokens_.data(), 100}).ok());  // chunks end at 16, 32 ... 96, 100
    Session::AppendOptions generated;
    generated.generated = true;
    ASSERT_TRUE(session->Append({tokens_.data() + 400, 3}, generated).ok());

    std::vector<int32_t> next(tokens_.begin(), tokens_.begin() + 90);  // shares 90 tokens
    next.insert(next.end(), tokens_.begin() + 500, tokens_.begin() + 560);
    const int64_t n = session->RewindPoint(90, std::ssize(next));
    EXPECT_EQ(n, marks == 3 ? 80 : 0);  // 96 is beyond what is the same; one mark is at 96
    const int64_t same = session->RewindPoint(100, 130);
    EXPECT_EQ(same, marks == 0 ? 0 : 96);
    session->Rewind(n);
    ASSERT_TRUE(session->Append({next.data() + n, next.size() - static_cast<size_t>(n)}).ok());
    ASSERT_TRUE(whole->Append(next).ok());
    EXPECT_EQ(LogitsOf(*session), LogitsOf(*whole));
    EXPECT_EQ(BytesOf(*session), BytesOf(*whole));
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, RecurrentStateTest, ::testing::Values("lfm2", "nemotron_h", "qwen35"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace weir
