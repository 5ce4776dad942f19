// SPDX-License-Identifier: Apache-2.0
// Likelihoods stored with the slots, observed through a session.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "engine/session.h"
#include "support/golden.h"

namespace weir {
namespace {

// The first token of a stream stays the most surprising one, whatever likelihoods are scaled by when a round starts.
TEST(Likelihood, AgesWithRoundsAndStaysInfiniteForTheFirstToken) {
  Ledger ledger;
  const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  auto file = std::move(GgufFile::Open(testing::GoldenDir() + "llama.gguf")).value();
  const std::unique_ptr<Model> model = std::move(LoadModel(*file, *backend, ledger)).value();
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec("sirllm:decay=0.5")).value();
  options.pot_slots = 32;
  auto session = std::move(Session::Make(*model, *backend, options)).value();
  const std::vector<int32_t> tokens = {3, 4, 5, 6};
  ASSERT_TRUE(session->Append(tokens).ok());
  const std::span<const float> nll = session->pot().nll(0);
  const std::vector<float> before(nll.begin(), nll.end());
  EXPECT_TRUE(std::isinf(before[0]));
  EXPECT_GT(before[1], 0);

  ASSERT_TRUE(session->BeginRound(tokens, 4).ok());
  EXPECT_TRUE(std::isinf(nll[0]));
  for (size_t s = 1; s < before.size(); ++s) EXPECT_EQ(nll[s], before[s] * 0.5f);
  EXPECT_EQ(session->n_rewindable(), 0);  // a new reader of these tokens would not have aged likelihoods
}

}  // namespace
}  // namespace weir
