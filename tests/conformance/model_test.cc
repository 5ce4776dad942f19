// SPDX-License-Identifier: Apache-2.0
// Every tiny model of tests/golden/models against the reference implementation that made it: each named intermediate,
// the logits, any chunking, any thread count, several pots in one forward pass.
#include <gtest/gtest.h>

#include <cmath>

#include <memory>
#include <set>

#include "engine/runner.h"
#include "engine/session.h"
#include "support/golden.h"

namespace weir {
namespace {

using testing::Golden;
using testing::RelativeError;

struct Loaded {
  Ledger ledger;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
};

std::unique_ptr<Loaded> LoadTiny(const std::string& name, std::unique_ptr<Backend> backend) {
  auto out = std::make_unique<Loaded>();
  out->backend = std::move(backend);
  auto file = GgufFile::Open(testing::GoldenDir() + name + ".gguf");
  EXPECT_TRUE(file.ok()) << file.status().message();
  if (!file.ok()) return nullptr;
  auto model = LoadModel(**file, *out->backend, out->ledger);
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) return nullptr;
  out->model = std::move(model).value();
  return out;
}

SessionOptions Options(const char* policy, int32_t pot, int32_t chunk = 64, DType kv = DType::kF32) {
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec(policy)).value();
  options.pot_slots = pot;
  options.chunk_rows = chunk;
  options.k_type = options.v_type = kv;
  options.nll = true;
  return options;
}

// Logits after every token, [n_tokens, n_vocab], read in chunks of the given sizes (the last one repeats).
std::vector<float> AllLogits(Loaded& m, const SessionOptions& options, const std::vector<int32_t>& tokens,
                             const std::vector<size_t>& chunks = {}) {
  auto session = Session::Make(*m.model, *m.backend, options);
  EXPECT_TRUE(session.ok()) << session.status().message();
  std::vector<float> out;
  if (!session.ok()) return out;
  for (size_t at = 0, i = 0; at < tokens.size(); ++i) {
    const size_t want = chunks.empty() ? 1 : chunks[std::min(i, chunks.size() - 1)];
    const size_t n = std::min(want, tokens.size() - at);
    EXPECT_TRUE((*session)->Append({tokens.data() + at, n}).ok());
    at += n;
    auto logits = (*session)->Logits();
    EXPECT_TRUE(logits.ok());
    // Only the last row of a chunk has logits; earlier rows stay zero.
    out.resize((at - 1) * logits->size(), 0.0f);
    out.insert(out.end(), logits->begin(), logits->end());
  }
  return out;
}

class ModelTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { golden_ = testing::ReadGolden(testing::GoldenDir() + GetParam() + ".golden"); }
  Golden golden_;
};

// Both position policies give the same result as long as nothing was evicted, so both are held to the reference.
TEST_P(ModelTest, IntermediatesAndLogitsMatchTheReference) {
  const std::vector<int32_t> tokens = testing::GoldenTokens(golden_);
  const std::vector<float>& rows = golden_.at("rows").data;
  for (const char* policy : {"full", "streaming_llm"}) {
    for (const char* device : {"ref", "cpu"}) {
      SCOPED_TRACE(std::string(policy) + " on " + device);
      auto m = LoadTiny(GetParam(), std::string(device) == "ref" ? MakeRefBackend() : MakeCpuBackend(2));
      ASSERT_NE(m, nullptr);
      std::set<std::string> seen;
      const TensorObserver observer = [&](const std::string& name, int64_t n_rows, int64_t n_cols, const float* data) {
        seen.insert(name);
        auto it = golden_.find(name);
        if (it == golden_.end()) return;
        ASSERT_EQ(n_rows, static_cast<int64_t>(tokens.size()));
        ASSERT_EQ(n_cols, it->second.cols) << name;
        for (size_t r = 0; r < rows.size(); ++r) {
          EXPECT_LT(
              RelativeError(data + static_cast<int64_t>(rows[r]) * n_cols, it->second.data.data() + r * n_cols, n_cols),
              1e-4)
              << name << " row " << rows[r];
        }
      };
      auto session = Session::Make(*m->model, *m->backend, Options(policy, 128));
      ASSERT_TRUE(session.ok()) << session.status().message();
      Session::AppendOptions append;
      append.observer = &observer;
      ASSERT_TRUE((*session)->Append(tokens, append).ok());
      for (const auto& [name, entry] : golden_) {
        if (name == "embd" || name == "final_norm" || name.rfind("blk.", 0) == 0) {
          EXPECT_TRUE(seen.count(name)) << name;
        }
      }
      const std::vector<float> logits = AllLogits(*m, Options(policy, 64), tokens);
      const auto& want = golden_.at("logits");
      ASSERT_EQ(logits.size(), want.data.size());
      for (int64_t r = 0; r < want.rows; ++r) {
        EXPECT_LT(RelativeError(&logits[r * want.cols], &want.data[r * want.cols], want.cols), 1e-4)
            << "logits row " << r;
      }
    }
  }
}

TEST_P(ModelTest, AnyChunkingGivesTheSameLogits) {
  const std::vector<int32_t> tokens = testing::GoldenTokens(golden_);
  auto m = LoadTiny(GetParam(), MakeCpuBackend(2));
  ASSERT_NE(m, nullptr);
  for (DType kv : {DType::kF32, DType::kF16}) {
    for (const char* policy : {"full", "streaming_llm"}) {
      const std::vector<float> decode = AllLogits(*m, Options(policy, 64, 64, kv), tokens);
      const size_t n_vocab = decode.size() / tokens.size();
      for (const std::vector<size_t>& chunks :
           std::vector<std::vector<size_t>>{{48}, {1, 47}, {7}, {16}, {3, 1, 20, 2}, {31}}) {
        const std::vector<float> logits = AllLogits(*m, Options(policy, 64, 64, kv), tokens, chunks);
        size_t at = 0;
        for (size_t i = 0; at < tokens.size(); ++i) {
          at = std::min(tokens.size(), at + chunks[std::min(i, chunks.size() - 1)]);
          EXPECT_LT(RelativeError(&logits[(at - 1) * n_vocab], &decode[(at - 1) * n_vocab], n_vocab), 1e-3);
        }
      }
    }
  }
}

TEST_P(ModelTest, ThreadCountChangesNothing) {
  const std::vector<int32_t> tokens = testing::GoldenTokens(golden_);
  std::vector<float> first;
  for (int threads : {1, 2, 3, 4}) {
    auto m = LoadTiny(GetParam(), MakeCpuBackend(threads));
    ASSERT_NE(m, nullptr);
    const std::vector<float> logits = AllLogits(*m, Options("streaming_llm", 24, 8, DType::kF16), tokens, {8, 1, 5});
    if (first.empty()) {
      first = logits;
    } else {
      EXPECT_EQ(first, logits) << threads << " threads";
    }
  }
}

TEST_P(ModelTest, LikelihoodsEqualThoseOfTheLogits) {
  const std::vector<int32_t> tokens = testing::GoldenTokens(golden_);
  auto m = LoadTiny(GetParam(), MakeCpuBackend(2));
  ASSERT_NE(m, nullptr);
  const auto& want = golden_.at("logits");
  for (int32_t chunk : {64, 7, 1}) {
    auto session = Session::Make(*m->model, *m->backend, Options("full", 64, chunk));
    ASSERT_TRUE(session.ok());
    std::vector<float> nll(tokens.size());
    Session::AppendOptions append;
    append.nll = nll.data();
    ASSERT_TRUE((*session)->Append(tokens, append).ok());
    EXPECT_EQ(nll[0], 0.0f);
    for (size_t i = 1; i < tokens.size(); ++i) {
      const float* row = &want.data[(i - 1) * want.cols];
      double sum = 0;
      for (int64_t v = 0; v < want.cols; ++v) sum += std::exp(static_cast<double>(row[v]));
      EXPECT_NEAR(nll[i], std::log(sum) - row[tokens[i]], 1e-3) << "token " << i << " chunk " << chunk;
    }
  }
}

TEST_P(ModelTest, SeveralPotsInOneForwardPassEqualSeparateOnes) {
  const std::vector<int32_t> tokens = testing::GoldenTokens(golden_);
  auto m = LoadTiny(GetParam(), MakeCpuBackend(2));
  ASSERT_NE(m, nullptr);
  const AttentionLayout& layout = m->model->config().attention;
  PotShape shape = layout.pot();
  shape.n_slots = 64;
  shape.state.n_floats = layout.n_state;
  shape.k_type = shape.v_type = DType::kF32;
  Ledger ledger;
  auto runner = std::move(Runner::Make(*m->model, *m->backend, {64, 64, 64, false}, ledger)).value();
  const size_t n_vocab = static_cast<size_t>(m->model->config().n_vocab),
               n_embd = static_cast<size_t>(m->model->config().n_embd);
  const auto meta = [&](size_t from, size_t n) {
    std::vector<SlotMeta> out(n);
    for (size_t i = 0; i < n; ++i) {
      out[i].seq = static_cast<int64_t>(i);
      out[i].token_id = tokens[from + i];
    }
    return out;
  };
  const std::vector<SlotMeta> a = meta(0, 5), b = meta(10, 17), c = meta(30, 1);
  std::vector<std::vector<float>> alone;
  for (const auto* part : {&a, &b, &c}) {
    std::vector<float> logits[2];
    for (const bool last_only : {false, true}) {
      auto pot = std::move(Pot::Make(shape, *m->backend, ledger)).value();
      BatchItem item{pot.get(), *part};
      item.last_hidden_only = last_only;
      auto hidden = runner->Forward({&item, 1});
      ASSERT_TRUE(hidden.ok());
      logits[last_only].resize(n_vocab);
      runner->Logits(*hidden + (part->size() - 1) * n_embd, 1, logits[last_only].data());
    }
    if (layout.stores(layout.n_layers - 1)) {
      EXPECT_EQ(logits[0], logits[1]) << "rows left out behind the last attention changed the last one";
    } else {  // attention of one row, where others were left out, sums in another order
      EXPECT_LT(RelativeError(logits[0].data(), logits[1].data(), n_vocab), 1e-5);
    }
    alone.push_back(logits[0]);
  }
  std::vector<std::unique_ptr<Pot>> pots;
  for (int i = 0; i < 3; ++i) pots.push_back(std::move(Pot::Make(shape, *m->backend, ledger)).value());
  const std::vector<BatchItem> items = {{pots[0].get(), a}, {pots[1].get(), b}, {pots[2].get(), c}};
  auto hidden = runner->Forward(items);
  ASSERT_TRUE(hidden.ok()) << hidden.status().message();
  std::vector<float> logits(n_vocab);
  const size_t last[] = {4, 21, 22};
  for (int i = 0; i < 3; ++i) {
    runner->Logits(*hidden + last[i] * n_embd, 1, logits.data());
    EXPECT_LT(RelativeError(logits.data(), alone[i].data(), n_vocab), 1e-4) << "pot " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, ModelTest, ::testing::ValuesIn(testing::GoldenModels()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weir
