// SPDX-License-Identifier: Apache-2.0
// Rows of an encoder in a session: they behave as the tokens whose embeddings they are.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "support/tiny.h"

namespace weir {
namespace {

using testing::Tiny;

SessionOptions Options(const std::string& policy, int32_t pot, int32_t chunk) {
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec(policy)).value();
  options.pot_slots = pot;
  options.chunk_rows = chunk;
  options.k_type = options.v_type = DType::kF32;
  options.probe = {5, 6, 7};
  return options;
}

std::vector<float> EmbeddingsOf(Tiny& m, const std::vector<int32_t>& tokens) {
  const int32_t n_embd = m.model->config().n_embd;
  std::vector<float> out;
  const TensorObserver observer = [&](const std::string& name, int64_t rows, int64_t cols, const float* data) {
    if (name == "embd") out.insert(out.end(), data, data + rows * cols);
  };
  auto session = std::move(Session::Make(*m.model, *m.backend, Options("full", 256, 0))).value();
  Session::AppendOptions append;
  append.observer = &observer;
  EXPECT_TRUE(session->Append(tokens, append).ok());
  EXPECT_EQ(out.size(), tokens.size() * static_cast<size_t>(n_embd));
  return out;
}

class EmbeddingsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(EmbeddingsTest, EqualTheTokensTheyStandFor) {
  Tiny m(GetParam());
  const std::vector<int32_t> tokens = testing::RandomTokens(120, m.model->config().n_vocab);
  const std::vector<float> rows = EmbeddingsOf(m, tokens);
  // Policies whose choices do not depend on likelihoods, which embeddings lack.
  for (const char* policy :
       {"full", "window", "streaming_llm", "h2o", "tova", "inf_mllm", "snapkv", "infinipot:alpha=0"}) {
    for (const int32_t chunk : {7, 20}) {
      SCOPED_TRACE(std::string(policy) + ", chunks of " + std::to_string(chunk));
      const int32_t pot = std::string(policy) == "full" ? 200 : 48;
      auto by_token = std::move(Session::Make(*m.model, *m.backend, Options(policy, pot, chunk))).value();
      auto by_row = std::move(Session::Make(*m.model, *m.backend, Options(policy, pot, chunk))).value();
      Session::AppendOptions options;
      options.t_src_ms = 1234;
      const size_t cut = 40, n_embd = static_cast<size_t>(m.model->config().n_embd);
      // Text, a picture, text.
      for (Session* session : {by_token.get(), by_row.get()}) {
        ASSERT_TRUE(session->Append({tokens.data(), cut}, options).ok());
        if (session == by_token.get()) {
          ASSERT_TRUE(session->Append({tokens.data() + cut, cut}, options).ok());
        } else {
          const Status read =
              session->AppendEmbeddings({rows.data() + cut * n_embd, cut * n_embd}, Modality::kImage, options);
          ASSERT_TRUE(read.ok()) << read.message();
        }
        ASSERT_TRUE(session->Append({tokens.data() + 2 * cut, cut}, options).ok());
      }
      EXPECT_EQ(testing::LogitsOf(*by_token), testing::LogitsOf(*by_row));
      EXPECT_EQ(testing::Held(*by_token), testing::Held(*by_row));
      EXPECT_EQ(by_row->counters().seen, 120);
      for (int32_t group = 0; group < by_row->pot().shape().n_groups(); ++group) {
        for (const SlotMeta& slot : by_row->pot().meta(group)) {
          const bool picture = slot.seq >= 40 && slot.seq < 80;
          EXPECT_EQ(slot.modality, picture ? Modality::kImage : Modality::kText);
          EXPECT_EQ(slot.token_id, picture ? -1 : tokens[static_cast<size_t>(slot.seq)]);
          EXPECT_EQ(slot.t_src_ms, 1234);
        }
      }
      // What they are survives a saved session.
      std::vector<uint8_t> saved;
      ASSERT_TRUE(by_row->Save(&saved).ok());
      auto restored = std::move(Session::Make(*m.model, *m.backend, Options(policy, pot, chunk))).value();
      ASSERT_TRUE(restored->Restore(saved).ok());
      ASSERT_TRUE(restored->Append({tokens.data(), 5}).ok());
      ASSERT_TRUE(by_row->Append({tokens.data(), 5}).ok());
      EXPECT_EQ(testing::LogitsOf(*restored), testing::LogitsOf(*by_row));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, EmbeddingsTest, ::testing::Values("llama", "qwen2"),
                         [](const auto& info) { return info.param; });

// Policies that rank by likelihood read pictures too, at the start of a stream as well.
TEST(Embeddings, LikelihoodsOfRows) {
  Tiny m("llama");
  const std::vector<int32_t> tokens = testing::RandomTokens(100, m.model->config().n_vocab);
  const std::vector<float> rows = EmbeddingsOf(m, tokens);
  const size_t n_embd = static_cast<size_t>(m.model->config().n_embd);
  auto session = std::move(Session::Make(*m.model, *m.backend, Options("sirllm", 64, 8))).value();
  ASSERT_TRUE(session->AppendEmbeddings({rows.data(), 10 * n_embd}, Modality::kVideo, {}).ok());
  const std::span<const float> nll = session->pot().nll(0);
  ASSERT_EQ(nll.size(), 10u);
  EXPECT_EQ(nll[0], std::numeric_limits<float>::infinity());
  for (size_t i = 1; i < nll.size(); ++i) EXPECT_EQ(nll[i], 0.0f);
  ASSERT_TRUE(session->Append({tokens.data(), 90}).ok());
  EXPECT_LE(session->pot().n_used(), 64);
}

TEST(Embeddings, Refused) {
  Tiny m("llama");
  const size_t n_embd = static_cast<size_t>(m.model->config().n_embd);
  std::vector<float> rows(2 * n_embd, 0.1f);
  auto session = std::move(Session::Make(*m.model, *m.backend, Options("window", 64, 8))).value();
  EXPECT_EQ(session->AppendEmbeddings({rows.data(), n_embd + 1}, Modality::kImage, {}).code(),
            StatusCode::kInvalidArgument);
  Session::AppendOptions with_nll;
  std::vector<float> nll(2);
  with_nll.nll = nll.data();
  EXPECT_EQ(session->AppendEmbeddings(rows, Modality::kImage, with_nll).code(), StatusCode::kInvalidArgument);
  rows[n_embd] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(session->AppendEmbeddings(rows, Modality::kImage, {}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(session->counters().seen, 0);
  EXPECT_EQ(session->Logits().status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir
