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

// What a window layer cannot see gets no score there: H2O, which keeps a set for every layer, drops it first.
TEST(WindowConformance, AttentionPoliciesDropWhatAWindowLayerCannotSee) {
  Tiny tiny("gemma3");
  const AttentionLayout& layout = tiny.model->config().attention;
  auto session = MakeSession(tiny, "h2o:reduce=mean", 64);
  ASSERT_NE(session, nullptr);
  ASSERT_EQ(session->pot().shape().granularity, Granularity::kPerHead);
  const std::vector<int32_t> tokens = testing::RandomTokens(48, tiny.model->config().n_vocab);
  // One row that sees everything but for its window.
  ASSERT_TRUE(session->Append(tokens).ok());
  for (int32_t layer = 0; layer < layout.n_layers; ++layer) {
    for (int32_t head = 0; head < layout.n_kv_heads; ++head) {
      const std::span<float> scores = session->pot().scores(session->pot().shape().group_of(layer, head));
      ASSERT_EQ(scores.size(), 48u);
      double sum = 0;
      for (float score : scores) sum += score;
      EXPECT_NEAR(sum, 48, 1e-3) << "layer " << layer;
      // The first token is seen by the 20 first rows of a window layer and by every row of the others.
      if (layout.is_window(layer)) {
        EXPECT_LE(scores[0], 20.0f);
      }
    }
  }
}

}  // namespace
}  // namespace weir
