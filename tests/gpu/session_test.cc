// SPDX-License-Identifier: Apache-2.0
// Whole models on a device beside the CPU: logits, what every policy keeps, what is written, likelihoods, and sessions
// that are saved on one and continue on the other.
#include <algorithm>

#include "backend/cuda/twin/watch.h"
#include "chat/generate.h"
#include "engine/session.h"
#include "engine/step_batch.h"
#include "gpu/devices.h"
#include "support/tiny.h"

namespace weir::testing {
namespace {

const int kWatched = twin::watch_one_in = 17;  // launches, of which one is

class SessionTest : public DeviceTest {
 protected:
  void Load(const std::string& name) {
    auto file = std::move(GgufFile::Open(GoldenDir() + name + ".gguf")).value();
    auto loaded = LoadModel(*file, *backend_, ledger_);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    model_ = std::move(*loaded);
    cpu_ = std::make_unique<Tiny>(name);
    tokens_ = RandomTokens(200, model_->config().n_vocab);
  }
  static SessionOptions Options(const std::string& policy, int32_t pot, DType type = DType::kF32) {
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec(policy)).value();
    options.pot_slots = pot;
    options.chunk_rows = 8;
    options.k_type = options.v_type = type;
    const auto policy_made = std::move(options.policy.Make()).value();
    if (policy_made->Needs().evidence.rows == EvidenceRows::kProbe) options.probe = {3, 1, 4, 1, 5};
    return options;
  }
  std::unique_ptr<Session> OnDevice(const SessionOptions& options) {
    auto made = Session::Make(*model_, *backend_, options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return std::move(*made);
  }
  std::unique_ptr<Session> OnCpu(const SessionOptions& options) {
    return std::move(Session::Make(*cpu_->model, *cpu_->backend, options)).value();
  }
  static int32_t Best(Session& session) {
    const std::vector<float> logits = LogitsOf(session);
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }

  std::unique_ptr<Model> model_;
  std::unique_ptr<Tiny> cpu_;
  std::vector<int32_t> tokens_;
};

TEST_P(SessionTest, LogitsOfEveryFamily) {
  for (const char* name :
       {"llama",    "qwen2",   "qwen3",   "gemma2",   "gemma3",     "phi3",       "gptneox",        "opt",
        "smollm3",  "exaone4", "cohere2", "mistral3", "lfm2",       "nemotron_h", "qwen35",         "qwen3moe",
        "qwen2moe", "olmoe",   "gpt_oss", "glm4moe",  "minimax_m2", "lfm2moe",    "nemotron_h_moe", "qwen35moe"}) {
    SCOPED_TRACE(name);
    Load(name);
    for (DType type : {DType::kF32, DType::kF16}) {
      const SessionOptions options = Options("full", 64, type);
      const auto mine = OnDevice(options), theirs = OnCpu(options);
      const std::span<const int32_t> tokens(tokens_.data(), 40);
      ASSERT_TRUE(mine->Append(tokens).ok());
      ASSERT_TRUE(theirs->Append(tokens).ok());
      EXPECT_LT(Distance(LogitsOf(*mine), LogitsOf(*theirs)), type == DType::kF32 ? 1e-4 : 2e-3);
      // The plan is what the ledger holds, on a device too.
      EXPECT_EQ(mine->ledger().used_bytes(), mine->plan().total_bytes);
    }
    model_.reset();
  }
}

// A device computes one axis, which is what text has; rows of pictures are refused.
TEST_P(SessionTest, TextOfAModelWithThreeAxes) {
  Load("../vision/qwen2vl");
  ASSERT_TRUE(cpu_->model->config().attention.has_axes());
  const SessionOptions options = Options("streaming_llm", 48);
  const auto mine = OnDevice(options), theirs = OnCpu(options);
  for (const auto& [from, n] : {std::pair<size_t, size_t>{0, 40}, {40, 30}, {70, 1}}) {
    const std::span<const int32_t> tokens(tokens_.data() + from, n);
    ASSERT_TRUE(mine->Append(tokens).ok());
    ASSERT_TRUE(theirs->Append(tokens).ok());
    EXPECT_LT(Distance(LogitsOf(*mine), LogitsOf(*theirs)), 1e-4);
  }
  EXPECT_EQ(Held(*mine), Held(*theirs));
  const std::vector<float> row(static_cast<size_t>(model_->config().n_embd));
  const Status refused = mine->AppendEmbeddings(row, Modality::kImage, {});
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
  EXPECT_NE(refused.message().find("three axes"), std::string::npos) << refused.message();
  EXPECT_TRUE(theirs->AppendEmbeddings(row, Modality::kImage, {}).ok());
}

TEST_P(SessionTest, EveryPolicyKeepsWhatItKeepsOnTheCpu) {
  Load("llama");
  for (const PolicyInfo* info : AllPolicyInfos()) {
    SCOPED_TRACE(info->name);
    const SessionOptions options = Options(info->name, std::string(info->name) == "full" ? 128 : 48);
    const PolicyNeeds needs = std::move(options.policy.Make()).value()->Needs();
    if (needs.evidence.noise.on || needs.merge != Merge::kNone) {  // built for the CPU
      EXPECT_EQ(Session::Make(*model_, *backend_, options).status().code(), StatusCode::kUnsupported);
      continue;
    }
    const auto mine = OnDevice(options), theirs = OnCpu(options);
    Session::AppendOptions append;
    append.end_of_prompt = true;
    for (const auto& [from, n] : {std::pair<size_t, size_t>{0, 60}, {60, 5}, {65, 1}}) {
      const std::span<const int32_t> tokens(tokens_.data() + from, n);
      ASSERT_TRUE(mine->Append(tokens, append).ok());
      ASSERT_TRUE(theirs->Append(tokens, append).ok());
    }
    EXPECT_EQ(Held(*mine), Held(*theirs));
    EXPECT_LT(Distance(LogitsOf(*mine), LogitsOf(*theirs)), 1e-4);
  }
}

// Layers with a window that hold the newest tokens alone, and forget while prompts and answers are read.
TEST_P(SessionTest, WindowsHoldTheNewest) {
  for (const char* name : {"gemma3", "exaone4", "cohere2"}) {
    SCOPED_TRACE(name);
    Load(name);
    const SessionOptions options = Options("streaming_llm", 48);
    const auto mine = OnDevice(options), theirs = OnCpu(options);
    ASSERT_NE(mine->pot().windows(), nullptr);
    EXPECT_EQ(mine->ledger().used_bytes(), mine->plan().total_bytes);
    size_t at = 0;
    for (const size_t n : {30u, 1u, 1u, 1u, 20u, 1u, 1u}) {
      const std::span<const int32_t> tokens(tokens_.data() + at, n);
      ASSERT_TRUE(mine->Append(tokens).ok());
      ASSERT_TRUE(theirs->Append(tokens).ok());
      EXPECT_LT(Distance(LogitsOf(*mine), LogitsOf(*theirs)), 1e-4);
      at += n;
    }
    std::vector<uint8_t> bytes;
    ASSERT_TRUE(mine->Save(&bytes).ok());
    const auto restored = OnDevice(options);
    ASSERT_TRUE(restored->Restore(bytes).ok());
    for (Session* one : {mine.get(), restored.get()}) ASSERT_TRUE(one->Append({tokens_.data() + at, 1}).ok());
    EXPECT_EQ(LogitsOf(*restored), LogitsOf(*mine));
    model_.reset();
  }
}

TEST_P(SessionTest, WritesTheSameAndIsAsSureOfIt) {
  Load("llama");
  SessionOptions options = Options("weir", 32);
  options.nll = true;
  const auto mine = OnDevice(options), theirs = OnCpu(options);
  std::vector<float> nll(60), expected(60);
  Session::AppendOptions append;
  const std::span<const int32_t> tokens(tokens_.data(), 60);
  append.nll = nll.data();
  ASSERT_TRUE(mine->Append(tokens, append).ok());
  append.nll = expected.data();
  ASSERT_TRUE(theirs->Append(tokens, append).ok());
  EXPECT_LT(Distance(nll, expected), 1e-4);
  append = {};
  append.generated = true;
  for (int i = 0; i < 12; ++i) {
    const int32_t next = Best(*theirs);
    EXPECT_EQ(Best(*mine), next) << i;
    ASSERT_TRUE(mine->Append({&next, 1}, append).ok());
    ASSERT_TRUE(theirs->Append({&next, 1}, append).ok());
  }
}

TEST_P(SessionTest, DrawsWithoutAllLogits) {
  Load("llama");
  const SessionOptions options = Options("streaming_llm", 48);
  for (const SamplerOptions& sampling :
       {SamplerOptions{.temperature = 0}, {.temperature = 0.9f, .repeat_penalty = 1.2f, .seed = 3}}) {
    const auto session = OnDevice(options);
    auto one = std::move(Sampler::Create(sampling)).value(), other = one;
    ASSERT_TRUE(session->Append({tokens_.data(), 20}).ok());
    for (int i = 0; i < 6; ++i) {
      const auto drawn = DrawToken(*session, one);
      ASSERT_TRUE(drawn.ok()) << drawn.status().message();
      ASSERT_EQ(*drawn, *other.Sample(*session->Logits())) << i;
      one.Accept(*drawn);
      other.Accept(*drawn);
      ASSERT_TRUE(session->Append({&*drawn, 1}).ok());
    }
  }
}

// Tokens of several sessions in one pass: each gets the logits that it alone would have.
TEST_P(SessionTest, StepsTogether) {
  Load("llama");
  const SessionOptions options = Options("streaming_llm", 24);
  std::vector<std::unique_ptr<Session>> together, alone;
  for (size_t i = 0; i < 3; ++i) {
    for (auto* sessions : {&together, &alone}) {
      sessions->push_back(OnDevice(options));
      ASSERT_TRUE(sessions->back()->Append({tokens_.data() + 20 * i, 10 + i}).ok());
    }
  }
  Ledger ledger;
  const StepBatch::Shape shape = StepBatch::ShapeFor(together[0]->plan(), 3);
  auto batch = std::move(StepBatch::Make(*model_, *backend_, shape, ledger)).value();
  for (int round = 0; round < 2; ++round) {
    std::vector<StepBatch::Step> steps;
    for (size_t i = 0; i < 3; ++i) steps.push_back({together[i].get(), tokens_[100 + i], 0, Status()});
    batch->Append(steps);
    Session::AppendOptions append;
    append.generated = true;
    for (size_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(steps[i].status.ok()) << steps[i].status.message();
      ASSERT_TRUE(alone[i]->Append({&tokens_[100 + i], 1}, append).ok());
      int32_t best = -1, expected = -1;
      float logit = 0, expected_logit = 0;
      ASSERT_TRUE(together[i]->MostLikely({&best, 1}, {&logit, 1}).ok());
      ASSERT_TRUE(alone[i]->MostLikely({&expected, 1}, {&expected_logit, 1}).ok());
      EXPECT_EQ(best, expected);
      EXPECT_LT(Distance(LogitsOf(*together[i]), LogitsOf(*alone[i])), 1e-5);
    }
  }
}

TEST_P(SessionTest, SavedHereGoesOnThere) {
  Load("llama");
  for (const char* policy : {"h2o", "adakv"}) {
    const SessionOptions options = Options(policy, 40, DType::kF16);
    const auto mine = OnDevice(options), theirs = OnCpu(options), again = OnDevice(options);
    ASSERT_TRUE(theirs->Append({tokens_.data(), 70}).ok());
    std::vector<uint8_t> saved, back;
    ASSERT_TRUE(theirs->Save(&saved).ok());
    ASSERT_TRUE(mine->Restore(saved).ok());
    ASSERT_TRUE(mine->Save(&back).ok());
    EXPECT_EQ(back, saved) << policy;
    EXPECT_LT(Distance(LogitsOf(*mine), LogitsOf(*theirs)), 1e-4) << policy;
    const std::span<const int32_t> more(tokens_.data() + 70, 20);
    ASSERT_TRUE(mine->Append(more).ok());
    ASSERT_TRUE(theirs->Append(more).ok());
    EXPECT_LT(Distance(LogitsOf(*mine), LogitsOf(*theirs)), 2e-3) << policy;
    ASSERT_TRUE(mine->Save(&saved).ok());
    ASSERT_TRUE(again->Restore(saved).ok());
    ASSERT_TRUE(again->Append({tokens_.data() + 90, 1}).ok());
    ASSERT_TRUE(mine->Append({tokens_.data() + 90, 1}).ok());
    EXPECT_EQ(LogitsOf(*again), LogitsOf(*mine)) << policy;
  }
}

TEST_P(SessionTest, RowsInPlaceOfTokens) {
  Load("llama");
  const SessionOptions options = Options("streaming_llm", 24);
  const auto mine = OnDevice(options), theirs = OnCpu(options);
  Rng rng(3);
  const std::vector<float> rows = cpu::Normals(rng, 12 * model_->config().n_embd);
  for (Session* session : {mine.get(), theirs.get()}) {
    ASSERT_TRUE(session->Append({tokens_.data(), 20}).ok());
    ASSERT_TRUE(session->AppendEmbeddings(rows, Modality::kImage, {}).ok());
  }
  EXPECT_LT(Distance(LogitsOf(*mine), LogitsOf(*theirs)), 1e-4);
}

WEIR_ON_DEVICES(SessionTest);

}  // namespace
}  // namespace weir::testing
