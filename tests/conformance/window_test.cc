// SPDX-License-Identifier: Apache-2.0
// Models whose layers have sliding windows, in pots that forget (docs/decisions/0007-windows-count-positions.md).
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/session.h"
#include "support/tiny.h"

namespace weir {
namespace {

using testing::LogitsOf;
using testing::RelativeError;
using testing::Tiny;

std::unique_ptr<Session> MakeSession(Tiny& tiny, const char* policy, int32_t pot) {
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec(policy)).value();
  options.pot_slots = pot;
  options.chunk_rows = 8;
  options.k_type = options.v_type = DType::kF32;
  auto session = Session::Make(*tiny.model, *tiny.backend, options);
  EXPECT_TRUE(session.ok()) << session.status().message();
  return session.ok() ? std::move(session).value() : nullptr;
}

// Every layer has a window of 20: a pot that always holds the newest 20 tokens loses nothing, whatever it drops.
TEST(WindowConformance, APotThatHoldsTheWindowLosesNothing) {
  Tiny tiny("llama_window");
  const int32_t window = tiny.model->config().attention.window;
  ASSERT_EQ(window, 20);
  const std::vector<int32_t> tokens = testing::RandomTokens(300, tiny.model->config().n_vocab);
  auto all = MakeSession(tiny, "full", 300), few = MakeSession(tiny, "window", 40);
  ASSERT_TRUE(all && few);
  for (size_t at = 0; at < tokens.size(); at += 3) {
    ASSERT_TRUE(all->Append({tokens.data() + at, 3}).ok());
    ASSERT_TRUE(few->Append({tokens.data() + at, 3}).ok());
    const std::vector<float> want = LogitsOf(*all), got = LogitsOf(*few);
    ASSERT_LT(RelativeError(got.data(), want.data(), want.size()), 1e-3) << "after " << at + 3 << " tokens";
  }
  EXPECT_GT(few->counters().dropped, 200);
}

// The same pots make a difference to a model that has layers without a window, so the test above can fail.
TEST(WindowConformance, LayersWithoutAWindowMissWhatIsDropped) {
  Tiny tiny("gemma2");
  const std::vector<int32_t> tokens = testing::RandomTokens(120, tiny.model->config().n_vocab);
  auto all = MakeSession(tiny, "full", 120), few = MakeSession(tiny, "window", 40);
  ASSERT_TRUE(all && few);
  ASSERT_TRUE(all->Append(tokens).ok());
  ASSERT_TRUE(few->Append(tokens).ok());
  const std::vector<float> want = LogitsOf(*all), got = LogitsOf(*few);
  EXPECT_GT(RelativeError(got.data(), want.data(), want.size()), 1e-2);
}

// Scores follow the mask, so that a policy with a set for every layer drops what the layer cannot see.
TEST(WindowConformance, WhatAWindowHasLeftBehindGetsNoMoreAttention) {
  Tiny tiny("gemma3");
  const AttentionLayout& layout = tiny.model->config().attention;
  auto session = MakeSession(tiny, "h2o:reduce=mean", 64);
  ASSERT_NE(session, nullptr);
  const PotShape& shape = session->pot().shape();
  ASSERT_EQ(shape.granularity, Granularity::kPerHead);
  const std::vector<int32_t> tokens = testing::RandomTokens(48, tiny.model->config().n_vocab);
  const auto first_scores = [&] {
    std::vector<float> out;
    for (int32_t group = 0; group < shape.n_groups(); ++group) out.push_back(session->pot().scores(group)[0]);
    return out;
  };
  const size_t window = static_cast<size_t>(layout.window);
  ASSERT_LT(window, tokens.size());
  ASSERT_TRUE(session->Append({tokens.data(), window}).ok());
  const std::vector<float> before = first_scores();
  ASSERT_TRUE(session->Append(std::span(tokens).subspan(window)).ok());
  const std::vector<float> after = first_scores();
  int n_window = 0, n_global = 0;
  for (int32_t layer = 0; layer < layout.n_layers; ++layer) {
    for (int32_t head = 0; head < layout.n_kv_heads; ++head) {
      const int32_t group = shape.group_of(layer, head);
      if (layout.is_window(layer)) {
        EXPECT_EQ(after[group], before[group]) << "layer " << layer;
        ++n_window;
      } else {
        EXPECT_GT(after[group], before[group]) << "layer " << layer;
        ++n_global;
      }
      double sum = 0;
      for (float score : session->pot().scores(group)) sum += score;
      EXPECT_NEAR(sum, 48, 1e-3) << "layer " << layer;
    }
  }
  EXPECT_GT(n_window, 0);
  EXPECT_GT(n_global, 0);
}

}  // namespace
}  // namespace weir
