// SPDX-License-Identifier: Apache-2.0
// The contract of a session: what was planned is what is used; what cannot work says what would.
#include "engine/session.h"
#include "kv/trace_reader.h"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <csignal>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <utility>

#include "base/rng.h"
#include "chat/generate.h"
#include "eval/perplexity.h"
#include "support/golden.h"

namespace weir {
namespace {

class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto file = std::move(GgufFile::Open(testing::GoldenDir() + "llama.gguf")).value();
    model_ = std::move(LoadModel(*file, *backend_, ledger_)).value();
    Rng rng(5);
    for (int i = 0; i < 2000; ++i) {
      tokens_.push_back(static_cast<int32_t>(rng.Below(static_cast<uint64_t>(model_->config().n_vocab))));
    }
  }
  SessionOptions Options(const char* policy, int32_t pot) const {
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec(policy)).value();
    options.pot_slots = pot;
    return options;
  }
  std::unique_ptr<Session> Make(const SessionOptions& options) {
    return std::move(Session::Make(*model_, *backend_, options)).value();
  }

  Ledger ledger_;
  std::unique_ptr<Backend> backend_ = MakeCpuBackend(2);
  std::unique_ptr<Model> model_;
  std::vector<int32_t> tokens_;
};

TEST_F(SessionTest, ThePlanIsWhatTheLedgerHolds) {
  for (int32_t pot : {8, 33, 256, 1500}) {
    for (DType type : {DType::kF32, DType::kF16}) {
      for (bool nll : {false, true}) {
        SessionOptions options = Options("streaming_llm", pot);
        options.k_type = options.v_type = type;
        options.nll = nll;
        auto plan = PlanSession(*model_, *backend_, options);
        ASSERT_TRUE(plan.ok()) << plan.status().message();
        auto session = Make(options);
        EXPECT_EQ(session->ledger().used_bytes(), plan->total_bytes);
        ASSERT_TRUE(session->Append(tokens_).ok());
        ASSERT_TRUE(session->Logits().ok());
        EXPECT_EQ(session->ledger().peak_bytes(), plan->total_bytes);
      }
    }
  }
}

// Two rotary embeddings, windows of their own, a state: the ledger holds what was planned.
TEST_F(SessionTest, ThePlanOfOtherShapesIsWhatTheLedgerHolds) {
  for (const char* name : {"gemma3", "gemma4", "falcon_h1", "deepseek2", "gpt_oss"}) {
    auto file = GgufFile::Open(testing::GoldenDir() + name + ".gguf");
    ASSERT_TRUE(file.ok()) << name;
    Ledger ledger;
    const auto model = LoadModel(**file, *backend_, ledger);
    ASSERT_TRUE(model.ok()) << name << ": " << model.status().message();
    const SessionOptions options = Options("streaming_llm", 100);
    const auto plan = PlanSession(**model, *backend_, options);
    ASSERT_TRUE(plan.ok()) << name << ": " << plan.status().message();
    const auto session = Session::Make(**model, *backend_, options);
    ASSERT_TRUE(session.ok()) << name << ": " << session.status().message();
    EXPECT_EQ((*session)->ledger().used_bytes(), plan->total_bytes) << name;
  }
}

// Callers pass every session the same options, whether its policy uses a probe or not.
TEST_F(SessionTest, AProbeNobodyAsksDoesNotHinderRestoring) {
  SessionOptions options = Options("streaming_llm", 64);
  options.probe = {1, 2, 3};
  auto session = Make(options), restored = Make(options);
  ASSERT_TRUE(session->Append({tokens_.data(), 100}).ok());
  std::vector<uint8_t> bytes, again;
  ASSERT_TRUE(session->Save(&bytes).ok());
  const Status status = restored->Restore(bytes);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_TRUE(restored->Save(&again).ok());
  EXPECT_EQ(again, bytes);
}

TEST_F(SessionTest, AProbeOfTokensThatAreNoneIsRefused) {
  SessionOptions options = Options("infinipot", 64);
  options.probe = {1, 2, 3};
  auto session = Make(options), restored = Make(options);
  const std::span<const int32_t> probe(tokens_.data() + 300, 3);
  ASSERT_TRUE(session->Append({tokens_.data(), 100}).ok());
  ASSERT_TRUE(session->SetProbe(probe).ok());
  std::vector<uint8_t> bytes;
  ASSERT_TRUE(session->Save(&bytes).ok());
  const auto* raw = reinterpret_cast<const uint8_t*>(probe.data());
  const auto at = std::search(bytes.begin(), bytes.end(), raw, raw + probe.size_bytes());
  ASSERT_NE(at, bytes.end());
  const int32_t n_vocab = model_->config().n_vocab;
  for (const int32_t id : {-1, 0, n_vocab - 1, n_vocab}) {
    std::memcpy(&at[4], &id, sizeof(id));
    EXPECT_EQ(restored->Restore(bytes).ok(), id >= 0 && id < n_vocab) << id;
  }
}

// A file's checksum tells damage, not malice: what the bytes say of every token is looked at, too.
TEST_F(SessionTest, TokensThatNoStreamCouldHoldAreRefused) {
  SessionOptions options = Options("streaming_llm", 64);
  auto session = Make(options), restored = Make(options);
  Session::AppendOptions pinned;
  pinned.pinned = true;
  ASSERT_TRUE(session->Append({tokens_.data(), 3}, pinned).ok());
  ASSERT_TRUE(session->Append({tokens_.data(), 100}).ok());
  ASSERT_TRUE(restored->Append({tokens_.data(), 7}).ok());
  std::vector<uint8_t> bytes, before, after;
  ASSERT_TRUE(session->Save(&bytes).ok());
  ASSERT_TRUE(restored->Save(&before).ok());
  // A slot's entry: seq, t_src_ms, token_id, modality, pinned, row. The newest one is found by its seq and time.
  const int64_t newest[2] = {102, 0};
  const auto at = std::search(bytes.begin(), bytes.end(), reinterpret_cast<const uint8_t*>(newest),
                              reinterpret_cast<const uint8_t*>(newest + 2)) -
                  bytes.begin();
  ASSERT_LT(at, std::ssize(bytes));
  const auto refused = [&](ptrdiff_t offset, int64_t value, size_t n_bytes) {
    std::vector<uint8_t> hostile = bytes;
    std::memcpy(hostile.data() + at + offset, &value, n_bytes);
    const Status status = restored->Restore(hostile);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << offset << ": " << value << " " << status.message();
    ASSERT_TRUE(restored->Save(&after).ok());
    EXPECT_EQ(after, before);
  };
  for (const int64_t seq : {int64_t{103}, int64_t{1}, int64_t{-1}, INT64_MAX, INT64_MIN}) refused(0, seq, 8);
  for (const int64_t t_ms : {INT64_MAX, INT64_MIN}) refused(8, t_ms, 8);
  for (const int64_t token :
       {int64_t{-100'000}, int64_t{-(1 << 17)}, int64_t{INT32_MIN}, int64_t{model_->config().n_vocab}})
    refused(16, token, 4);
  refused(21, 1, 1);  // one more is pinned than the session says
  EXPECT_TRUE(restored->Restore(bytes).ok());
}

TEST_F(SessionTest, ACopyIsWhatASavedSessionWouldBe) {
  for (const char* policy : {"streaming_llm", "h2o", "infinipot", "weir", "adakv", "pyramidkv"}) {
    SCOPED_TRACE(policy);
    SessionOptions options = Options(policy, 64), larger = Options(policy, 80);
    options.probe = larger.probe = {1, 2, 3};
    auto session = Make(options), restored = Make(options), copy = Make(options), other = Make(larger);
    ASSERT_TRUE(session->Append({tokens_.data(), 100}).ok());
    if (session->plan().probe_slots > 0) ASSERT_TRUE(session->SetProbe({tokens_.data(), 2}).ok());
    ASSERT_TRUE(session->BeginRound({tokens_.data() + 100, 3}, 5).ok());
    ASSERT_TRUE(session->Append({tokens_.data() + 100, 3}).ok());
    ASSERT_TRUE(session->Logits().ok());
    ASSERT_TRUE(copy->Append({tokens_.data() + 7, 70}).ok());
    std::vector<uint8_t> bytes, of_copy, of_restored;
    ASSERT_TRUE(session->Save(&bytes).ok());
    ASSERT_TRUE(restored->Restore(bytes).ok());
    for (int round = 0; round < 2; ++round) {  // a copy of itself is nothing new
      const Status status = copy->CopyFrom(round == 0 ? *session : *copy);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_TRUE(copy->Save(&of_copy).ok());
      EXPECT_EQ(of_copy, bytes);
    }
    for (Session* one : {copy.get(), restored.get()}) {
      ASSERT_TRUE(one->Append({tokens_.data() + 103, 50}).ok());
      ASSERT_TRUE(one->Save(one == copy.get() ? &of_copy : &of_restored).ok());
    }
    EXPECT_EQ(of_copy, of_restored);
    ASSERT_TRUE(other->Append({tokens_.data(), 9}).ok());
    EXPECT_EQ(other->CopyFrom(*session).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(other->n_seen(), 9);
  }
}

// A head's keys, and a group's slots, of more than one piece of what passes by.
TEST_F(SessionTest, ALargePotComesBackWhole) {
  SessionOptions options = Options("h2o", 2600);
  options.k_type = options.v_type = DType::kF32;
  auto session = Make(options), restored = Make(options), copy = Make(options);
  ASSERT_TRUE(session->Append(tokens_).ok());
  ASSERT_TRUE(session->Append({tokens_.data(), 555}).ok());
  const Pot& pot = session->pot();
  const size_t n_bytes = static_cast<size_t>(pot.n_used(1, 1)) * static_cast<size_t>(pot.shape().head_dim) * 4;
  ASSERT_GT(n_bytes, size_t{1} << 17);
  std::vector<uint8_t> bytes, again;
  ASSERT_TRUE(session->Save(&bytes).ok());
  ASSERT_TRUE(restored->Restore(bytes).ok());
  ASSERT_TRUE(copy->CopyFrom(*session).ok());
  for (Session* one : {restored.get(), copy.get()}) {
    ASSERT_TRUE(one->Save(&again).ok());
    EXPECT_EQ(again, bytes);
    EXPECT_EQ(std::memcmp(one->pot().keys(1, 1), pot.keys(1, 1), n_bytes), 0);
    EXPECT_EQ(std::memcmp(one->pot().values(2, 0), pot.values(2, 0), n_bytes), 0);
  }
}

// A file may be cut while it is read.
TEST_F(SessionTest, ASourceThatFailsTheSecondTimeLeavesTheSessionAsNew) {
  class Fails final : public ByteSource {
   public:
    // `last` bytes cannot be read, or, with `other`, are others.
    Fails(std::span<const uint8_t> bytes, int64_t last, bool other) : source_(bytes), last_(last), other_(other) {}
    Status Read(std::span<uint8_t> to) override {
      const Status status = source_.Read(to);
      if (n_rewinds_ < 2 || n_left() >= last_) return status;
      if (!other_) return IoError("gone");
      for (int64_t i = std::max<int64_t>(0, std::ssize(to) - (last_ - n_left())); i < std::ssize(to); ++i)
        to[i] ^= 0xFF;
      return status;
    }
    Status Skip(int64_t n) override { return source_.Skip(n); }
    int64_t n_left() const override { return source_.n_left(); }
    void Rewind() override {
      source_.Rewind();
      ++n_rewinds_;
    }

   private:
    SpanSource source_;
    const int64_t last_;
    const bool other_;
    int n_rewinds_ = 0;
  };
  SessionOptions options = Options("streaming_llm", 64);
  auto session = Make(options), restored = Make(options), fresh = Make(options);
  ASSERT_TRUE(session->Append({tokens_.data(), 100}).ok());
  std::vector<uint8_t> bytes, expected, after;
  ASSERT_TRUE(session->Save(&bytes).ok());
  EXPECT_EQ(std::ssize(bytes), session->state_bytes());
  ASSERT_TRUE(fresh->Append({tokens_.data(), 30}).ok());
  ASSERT_TRUE(fresh->Save(&expected).ok());
  const int64_t n = std::ssize(bytes);
  for (const bool other : {false, true}) {
    for (const int64_t last : {n - 150, n - 300, n - 500, n / 2, int64_t{1}}) {
      SCOPED_TRACE(last);
      Fails source(bytes, last, other);
      const Status status = restored->Restore(source);
      if (!other) {
        EXPECT_EQ(status.code(), StatusCode::kIo);
      }
      if (status.ok()) {  // other keys and values than those that were looked at
        EXPECT_LE(last, n / 2);
        restored->Reset();
      }
      EXPECT_EQ(restored->n_seen(), 0);
      ASSERT_TRUE(restored->Append({tokens_.data(), 30}).ok());
      ASSERT_TRUE(restored->Save(&after).ok());
      EXPECT_EQ(after, expected);
    }
  }
}

TEST_F(SessionTest, ABudgetBecomesTheLargestPotThatFits) {
  const int64_t minimum = PlanSession(*model_, *backend_, Options("streaming_llm", 64))->minimum_bytes;
  for (int64_t budget : {minimum, minimum + 1, minimum * 2, minimum * 7 + 13}) {
    SessionOptions options = Options("streaming_llm", 0);
    options.budget_bytes = budget;
    auto plan = PlanSession(*model_, *backend_, options);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_LE(plan->total_bytes, budget);
    auto session = Make(options);
    EXPECT_TRUE(session->Append({tokens_.data(), 500}).ok());
    EXPECT_LE(session->ledger().peak_bytes(), budget);
  }
}

TEST_F(SessionTest, AGenerousBudgetStopsAtTheTrainedContext) {
  SessionOptions options = Options("streaming_llm", 0);
  options.budget_bytes = int64_t{1} << 50;
  auto plan = PlanSession(*model_, *backend_, options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->pot.n_slots, model_->config().n_ctx_train);
}

TEST_F(SessionTest, TooSmallABudgetNamesTheSmallestThatWorks) {
  SessionOptions options = Options("streaming_llm", 0);
  options.budget_bytes = 1000;
  auto plan = PlanSession(*model_, *backend_, options);
  ASSERT_EQ(plan.status().code(), StatusCode::kOverBudget);
  const int64_t minimum = PlanSession(*model_, *backend_, Options("streaming_llm", 64))->minimum_bytes;
  EXPECT_NE(plan.status().message().find(std::to_string(minimum)), std::string::npos) << plan.status().message();
  options.budget_bytes = minimum;
  EXPECT_TRUE(PlanSession(*model_, *backend_, options).ok());
  options.budget_bytes = minimum - 1;
  EXPECT_EQ(PlanSession(*model_, *backend_, options).status().code(), StatusCode::kOverBudget);
}

TEST_F(SessionTest, TheMinimumReadsARowAtATimeInTheSmallestPot) {
  SessionOptions options = Options("streaming_llm", 6);
  options.chunk_rows = 1;
  const auto plan = PlanSession(*model_, *backend_, options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->total_bytes, plan->minimum_bytes);
}

// Where a requested pot does not fit, smaller chunks are tried.
TEST_F(SessionTest, ARequestedPotGetsSmallerChunks) {
  SessionOptions options = Options("streaming_llm", 256);
  const auto wide = PlanSession(*model_, *backend_, options);
  options.chunk_rows = 1;
  const auto narrow = PlanSession(*model_, *backend_, options);
  ASSERT_TRUE(wide.ok() && narrow.ok());
  ASSERT_LT(narrow->total_bytes, wide->total_bytes);
  options.chunk_rows = 0;
  options.budget_bytes = narrow->total_bytes;
  const auto fits = PlanSession(*model_, *backend_, options);
  ASSERT_TRUE(fits.ok()) << fits.status().message();
  EXPECT_EQ(fits->chunk_rows, 1);
  EXPECT_EQ(fits->pot.n_slots, 256);
  options.budget_bytes = wide->total_bytes - 1;
  EXPECT_EQ(PlanSession(*model_, *backend_, options)->chunk_rows, wide->chunk_rows / 2);
  options.budget_bytes = wide->total_bytes;
  EXPECT_EQ(PlanSession(*model_, *backend_, options)->chunk_rows, wide->chunk_rows);
}

TEST_F(SessionTest, ThePotThatNobodyAskedForIsWithinTheTrainedContext) {
  const auto plan = PlanSession(*model_, *backend_, Options("streaming_llm", 0));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->pot.n_slots, std::min(4096, model_->config().n_ctx_train));
}

TEST_F(SessionTest, APotThatThePolicyCannotUseIsRefused) {
  EXPECT_EQ(PlanSession(*model_, *backend_, Options("streaming_llm", 5)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(PlanSession(*model_, *backend_, Options("streaming_llm", 6)).ok());
  SessionOptions both = Options("streaming_llm", 100000);
  both.budget_bytes = 1 << 20;
  EXPECT_EQ(PlanSession(*model_, *backend_, both).status().code(), StatusCode::kOverBudget);
  SessionOptions q8 = Options("full", 64);
  q8.k_type = DType::kQ8_0;  // heads of 16 do not hold blocks of 32
  EXPECT_EQ(PlanSession(*model_, *backend_, q8).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(SessionTest, TheSmallestPotStillReads) {
  auto session = Make(Options("streaming_llm", 6));
  EXPECT_TRUE(session->Append({tokens_.data(), 200}).ok());
  auto logits = session->Logits();
  ASSERT_TRUE(logits.ok());
  for (float x : *logits) ASSERT_TRUE(std::isfinite(x));
}

TEST_F(SessionTest, EveryRefusedAllocationIsAnAnswer) {
  for (int n = 1; n < 30; ++n) {
    Ledger ledger;
    ledger.FailNth(n);
    auto runner = Runner::Make(*model_, *backend_, {16, 64, 64, true}, ledger);
    if (runner.ok()) return;  // n is past the last allocation
    EXPECT_EQ(runner.status().code(), StatusCode::kOverBudget);
    EXPECT_EQ(ledger.used_bytes(), 0) << "allocation " << n;
  }
  FAIL() << "no allocation count reached";
}

TEST_F(SessionTest, BadTokensChangeNothing) {
  auto session = Make(Options("full", 64));
  EXPECT_EQ(session->Logits().status().code(), StatusCode::kInvalidArgument);
  for (int32_t bad : {-1, model_->config().n_vocab}) {
    EXPECT_EQ(session->Append({&bad, 1}).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(session->counters().seen, 0);
    EXPECT_EQ(session->pot().n_used(), 0);
  }
}

TEST_F(SessionTest, StopsBetweenChunks) {
  auto session = Make(Options("streaming_llm", 64));
  std::atomic<bool> stop{false};
  Session::AppendOptions append;
  append.stop = &stop;
  append.progress = [&](int64_t done) { stop = done >= 32; };
  EXPECT_EQ(session->Append(tokens_, append).code(), StatusCode::kCancelled);
  EXPECT_EQ(session->counters().seen, 32);
  EXPECT_TRUE(session->Logits().ok());
}

TEST_F(SessionTest, TheMostLikelyAreTheLargestLogits) {
  auto session = Make(Options("streaming_llm", 64));
  std::vector<int32_t> ids(40);
  std::vector<float> values(40);
  EXPECT_EQ(session->MostLikely(ids, values).code(), StatusCode::kInvalidArgument) << "nothing was read";
  ASSERT_TRUE(session->Append({tokens_.data(), 100}).ok());
  ASSERT_TRUE(session->MostLikely(ids, values).ok());
  const auto logits = std::move(session->Logits()).value();
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(ids[i], order[i]);
    EXPECT_EQ(values[i], logits[order[i]]);
  }
  EXPECT_EQ(session->MostLikely({ids.data(), 3}, {values.data(), 2}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(session->MostLikely({}, {}).code(), StatusCode::kInvalidArgument);
  ids.resize(kMaxTopLogits + 1), values.resize(ids.size());
  EXPECT_EQ(session->MostLikely(ids, values).code(), StatusCode::kInvalidArgument);
}

// Only the logits that decide a draw are read if they suffice; otherwise all are.
TEST_F(SessionTest, TokensAreDrawnAsFromAllLogits) {
  for (const SamplerOptions& options : {SamplerOptions{.temperature = 0},
                                        {.temperature = 0.9f, .seed = 3},
                                        {.temperature = 1, .top_k = 0, .seed = 4},
                                        {.temperature = 1, .top_k = 300, .seed = 5},
                                        {.temperature = 2, .top_k = 20, .repeat_penalty = 1.3f, .seed = 6},
                                        {.temperature = 0, .repeat_penalty = 0.7f}}) {
    auto session = Make(Options("streaming_llm", 64));
    auto one = std::move(Sampler::Create(options)).value(), other = one;
    ASSERT_TRUE(session->Append({tokens_.data(), 20}).ok());
    for (int i = 0; i < 30; ++i) {
      const auto drawn = DrawToken(*session, one);
      ASSERT_TRUE(drawn.ok()) << drawn.status().message();
      ASSERT_EQ(*drawn, *other.Sample(*session->Logits())) << options.top_k << ", token " << i;
      one.Accept(*drawn);
      other.Accept(*drawn);
      ASSERT_TRUE(session->Append({&*drawn, 1}).ok());
    }
  }
}

TEST_F(SessionTest, ResetIsAsNew) {
  auto session = Make(Options("streaming_llm", 64));
  ASSERT_TRUE(session->Append({tokens_.data(), 50}).ok());
  const std::vector<float> first((*session->Logits()).begin(), (*session->Logits()).end());
  ASSERT_TRUE(session->Append({tokens_.data() + 50, 500}).ok());
  session->Reset();
  EXPECT_EQ(session->counters().seen, 0);
  ASSERT_TRUE(session->Append({tokens_.data(), 50}).ok());
  const std::vector<float> second((*session->Logits()).begin(), (*session->Logits()).end());
  EXPECT_EQ(first, second);
}

TEST_F(SessionTest, ResetDrawsTheSameLotsAgain) {
  auto session = Make(Options("random", 64));
  ASSERT_TRUE(session->Append({tokens_.data(), 300}).ok());
  const std::vector<float> first((*session->Logits()).begin(), (*session->Logits()).end());
  session->Reset();
  ASSERT_TRUE(session->Append({tokens_.data(), 300}).ok());
  const std::vector<float> second((*session->Logits()).begin(), (*session->Logits()).end());
  EXPECT_EQ(first, second);
}

int n_selected = 0;

// Remembers how often it was asked.
class Remembers : public Policy {
 public:
  PolicyNeeds Needs() const override { return {}; }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override { return n_slots - n_coming; }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    n_selected = ++n_;
    keep->resize(static_cast<size_t>(n_keep));
    std::iota(keep->begin(), keep->end(), static_cast<int32_t>(view.slots.size()) - n_keep);
  }

 private:
  int n_ = 0;
};

TEST_F(SessionTest, APolicyRemembersNothingOfAStreamThatWasReset) {
  const PolicyInfo info = {"remembers", "", "", {}, [](const PolicyOptions&) -> Result<std::unique_ptr<Policy>> {
                             return std::unique_ptr<Policy>(new Remembers);
                           }};
  SessionOptions options = Options("window", 64);
  options.policy.info = &info;
  auto session = Make(options);
  ASSERT_TRUE(session->Append({tokens_.data(), 300}).ok());
  const int n_first = std::exchange(n_selected, 0);
  EXPECT_GT(n_first, 1);
  session->Reset();
  ASSERT_TRUE(session->Append({tokens_.data(), 300}).ok());
  EXPECT_EQ(n_selected, n_first);
}

TEST_F(SessionTest, OnlyWholeChunksOfAPromptAreGoneOnFrom) {
  SessionOptions options = Options("streaming_llm", 64);
  options.chunk_rows = 16;
  auto session = Make(options), restored = Make(options);
  EXPECT_EQ(session->RewindPoint(0, 10), 0);
  ASSERT_TRUE(session->Append({tokens_.data(), 50}).ok());
  EXPECT_EQ(session->RewindPoint(50, 100), 48);
  EXPECT_EQ(session->RewindPoint(48, 100), 32) << "the next token must be known";
  EXPECT_EQ(session->RewindPoint(17, 100), 16);
  EXPECT_EQ(session->RewindPoint(16, 100), 0);
  // An answer takes nothing away.
  Session::AppendOptions answer;
  answer.generated = true;
  ASSERT_TRUE(session->Append({tokens_.data() + 50, 3}, answer).ok());
  EXPECT_EQ(session->RewindPoint(53, 100), 48);
  std::vector<uint8_t> bytes;
  ASSERT_TRUE(session->Save(&bytes).ok());
  ASSERT_TRUE(restored->Restore(bytes).ok());
  EXPECT_EQ(restored->RewindPoint(53, 100), 0) << "nobody knows in which chunks it came";
  ASSERT_TRUE(session->Append({tokens_.data() + 53, 20}).ok());
  ASSERT_GT(session->counters().selections, 0);
  EXPECT_EQ(session->RewindPoint(20, 100), 0);
  session->Reset();
  ASSERT_TRUE(session->Append({tokens_.data(), 20}).ok());
  EXPECT_EQ(session->RewindPoint(20, 100), 16);
  options.nll = true;
  auto scoring = Make(options);
  ASSERT_TRUE(scoring->Append({tokens_.data(), 50}).ok());
  EXPECT_EQ(scoring->RewindPoint(50, 100), 0);
}

// A question gets all the room that pinned words and the policy's own least leave, and no more.
TEST_F(SessionTest, RoomForAQuestionLeavesWhatIsPinned) {
  auto session = Make(Options("tova", 64));
  Session::AppendOptions pinned;
  pinned.pinned = true;
  ASSERT_TRUE(session->Append({tokens_.data(), 50}, pinned).ok());
  ASSERT_TRUE(session->Append({tokens_.data() + 50, 14}).ok());
  const Status status = session->BeginRound({tokens_.data() + 64, 40}, 0);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(session->held().n_pinned, 50);
  EXPECT_EQ(session->pot().n_used(), 51);
  ASSERT_TRUE(session->Append({tokens_.data() + 64, 40}).ok());
  EXPECT_EQ(session->held().n_pinned, 50);
}

TEST_F(SessionTest, ResetBringsTheFirstProbeBack) {
  SessionOptions options = Options("infinipot:alpha=0", 64);
  options.probe = {1, 2, 3};
  const auto kept = [&](Session& session) {
    EXPECT_TRUE(session.Append({tokens_.data(), 200}).ok());
    std::vector<uint8_t> bytes;
    EXPECT_TRUE(session.Save(&bytes).ok());
    return bytes;
  };
  const std::vector<uint8_t> expected = kept(*Make(options));
  auto session = Make(options);
  const int32_t other[] = {7, 8};
  ASSERT_TRUE(session->SetProbe(other).ok());
  EXPECT_NE(kept(*session), expected);
  session->Reset();
  EXPECT_EQ(kept(*session), expected);
}

TEST_F(SessionTest, TheTraceTellsEveryDroppedToken) {
  const std::string path = ::testing::TempDir() + "weir_trace_" + std::to_string(getpid()) + ".jsonl";
  auto session = Make(Options("streaming_llm", 64));
  auto trace = std::move(TraceWriter::Open(path)).value();
  session->SetTrace(trace.get());
  ASSERT_TRUE(session->Append({tokens_.data(), 300}).ok());
  EXPECT_FALSE(std::ifstream(path).good());  // not there before it is whole
  ASSERT_TRUE(trace->Close(session->pot(), 300).ok());
  auto reader = std::move(TraceReader::Open(path)).value();
  TraceStep step;
  int64_t n_dropped = 0;
  while (*reader->Next(&step)) n_dropped += step.n_slots - step.n_keep;
  EXPECT_EQ(n_dropped, session->counters().dropped);
  // What the trace says is held is what the pot holds.
  std::vector<int64_t> said, held;
  for (const SeqRun& run : reader->held(0)) {
    for (int64_t i = 0; i < run.count; ++i) said.push_back(run.first + i);
  }
  for (const SlotMeta& m : session->pot().meta(0)) held.push_back(m.seq);
  EXPECT_EQ(said, held);
  EXPECT_EQ(reader->held(0).size(), 2u) << "the first tokens and the newest, each in one piece";
  ASSERT_TRUE(reader->counters().has_value());
  EXPECT_EQ(reader->counters()->dropped, n_dropped);
  std::remove(path.c_str());
}

TEST_F(SessionTest, AFullDiskEndsTheTraceWithAnError) {
  auto opened = TraceWriter::Open("/dev/full/trace.jsonl");
  EXPECT_EQ(opened.status().code(), StatusCode::kIo);
  EXPECT_EQ(TraceWriter::Open(::testing::TempDir() + "no/such/dir/trace.jsonl").status().code(), StatusCode::kIo);
}

// A trace that cannot be written ends with an error, once; the session goes on without it.
TEST_F(SessionTest, ATraceThatCannotGrowEnds) {
  const std::string path = ::testing::TempDir() + "limited_" + std::to_string(getpid()) + ".jsonl";
  auto session = Make(Options("streaming_llm", 64));
  TraceInfo info;
  info.pot = session->plan().pot;
  auto trace = std::move(TraceWriter::Open(path, std::move(info))).value();
  session->SetTrace(trace.get());
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small = {16'384, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  int n_failed = 0, n_since = 0;
  for (size_t i = 0; i < 1900; i += 10) {
    const Status status = session->Append({tokens_.data() + i, 10});
    if (!status.ok()) {
      EXPECT_EQ(status.code(), StatusCode::kIo) << status.message();
      ++n_failed;
      session->Reset();
    } else if (n_failed > 0) {
      ++n_since;
    }
  }
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(n_failed, 1);
  EXPECT_GT(n_since, 50);
  std::remove((path + ".part").c_str());
}

TEST_F(SessionTest, WindowPerplexityEqualsTheMeanOfTheSecondHalves) {
  SessionOptions options = Options("full", 64);
  options.nll = true;
  auto session = Make(options);
  WindowOptions window;
  window.n_ctx = 32;
  window.max_windows = 3;
  auto result = WindowPerplexity(*session, tokens_, window);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->n, 3 * 15);
  double sum = 0;
  for (int w = 0; w < 3; ++w) {
    session->Reset();
    std::vector<float> nll(32);
    Session::AppendOptions append;
    append.nll = nll.data();
    ASSERT_TRUE(session->Append({tokens_.data() + w * 32, 32}, append).ok());
    for (int i = 17; i < 32; ++i) sum += nll[i];
  }
  EXPECT_NEAR(result->nll_mean, sum / 45, 1e-6);
  window.n_ctx = 128;
  EXPECT_EQ(WindowPerplexity(*session, tokens_, window).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(SessionTest, StreamPerplexityReportsEverySegment) {
  SessionOptions options = Options("streaming_llm", 64);
  options.nll = true;
  auto session = Make(options);
  std::vector<std::pair<int64_t, int64_t>> spans;
  int64_t counted = 0;
  StreamPerplexity stream(*session, 300, [&](int64_t first, int64_t end, const PerplexityResult& result) {
    spans.push_back({first, end});
    counted += result.n;
  });
  ASSERT_TRUE(stream.Push({tokens_.data(), 1000}, nullptr).ok());
  stream.Finish();
  EXPECT_EQ(spans, (std::vector<std::pair<int64_t, int64_t>>{{0, 300}, {300, 600}, {600, 900}, {900, 1000}}));
  EXPECT_EQ(counted, 999);
  EXPECT_EQ(stream.total().Result().n, 999);
}

}  // namespace
}  // namespace weir
