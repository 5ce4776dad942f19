// SPDX-License-Identifier: Apache-2.0
#include "ops/nll.h"

#include <cmath>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(RefHeadNll, ByHand) {
  const float head[] = {1, 0, 0, 1, -1, -1};  // [3, 2]
  Ledger ledger;
  Result<std::unique_ptr<Matrix>> matrix =
      ref::PrepareMatrix({"head", DType::kF32, 3, 2, reinterpret_cast<const uint8_t*>(head), nullptr}, ledger);
  ASSERT_TRUE(matrix.ok());
  const float x[] = {2, 1, 0, 0, 5, 5};
  const int32_t target[] = {1, 2, -1};
  float nll[] = {-1, -1, -1};
  NllArgs args;
  args.x = x;
  args.n_rows = 3;
  args.n_in = 2;
  args.head = matrix->get();
  args.target = target;
  args.nll = nll;
  ref::HeadNll(args);
  EXPECT_FLOAT_EQ(nll[0], static_cast<float>(std::log(std::exp(2.0) + std::exp(1.0) + std::exp(-3.0)) - 1));
  EXPECT_FLOAT_EQ(nll[1], static_cast<float>(std::log(3.0)));
  EXPECT_EQ(nll[2], 0.0f) << "no target, no likelihood";
  const float bias[] = {0, 0, 7};
  args.bias = bias;
  args.softcap = 2;
  ref::HeadNll(args);
  const double z[] = {2 * std::tanh(1.0), 2 * std::tanh(0.5), 2 * std::tanh(2.0)};
  EXPECT_FLOAT_EQ(nll[0], static_cast<float>(std::log(std::exp(z[0]) + std::exp(z[1]) + std::exp(z[2])) - z[1]));
}

TEST(NllTiles, CountEveryIdOnceOrASampleOfThemAsOften) {
  for (const int64_t n_vocab : {1, 127, 128, 129, 1000, 16383, 16384, 49152, 128256, 151936, 262145}) {
    for (const Normaliser normaliser : {Normaliser::kExact, Normaliser::kSampled}) {
      const NllTiles tiles(n_vocab, normaliser);
      double counted = 0;
      int64_t end = 0, n_computed = 0;
      for (int64_t t = 0; t < tiles.n_tiles(); ++t) {
        ASSERT_GE(tiles.first_id(t), end);
        ASSERT_GT(tiles.n_ids(t), 0);
        end = tiles.first_id(t) + tiles.n_ids(t);
        n_computed += tiles.n_ids(t);
        counted += static_cast<double>(tiles.n_ids(t)) * std::exp(tiles.log_weight(t));
        ASSERT_EQ(tiles.sampled(tiles.first_id(t)), tiles.log_weight(t) > 0);
      }
      ASSERT_LE(end, n_vocab);
      EXPECT_NEAR(counted, n_vocab, 1e-5 * n_vocab);
      const bool all = normaliser == Normaliser::kExact || n_vocab < NllTiles::kSmallest;
      EXPECT_EQ(n_computed == n_vocab, all);
      EXPECT_TRUE(all || n_computed < n_vocab / 6) << n_vocab;
    }
  }
}

// The estimate is exact where all sampled logits are equal, whatever the target's is.
TEST(RefHeadNll, SampledNormaliser) {
  const int64_t n_vocab = 20000;
  std::vector<float> column(static_cast<size_t>(n_vocab), 1.0f);
  column[7] = 3;
  const int32_t rare = 19999;
  column[rare] = 9;
  Ledger ledger;
  Result<std::unique_ptr<Matrix>> matrix = ref::PrepareMatrix(
      {"head", DType::kF32, n_vocab, 1, reinterpret_cast<const uint8_t*>(column.data()), nullptr}, ledger);
  ASSERT_TRUE(matrix.ok());
  const float x[] = {1, 1, 1};
  const int32_t target[] = {7, 100, rare};
  float sampled[3], exact[3];
  NllArgs args = {.x = x, .n_rows = 3, .n_in = 1, .head = matrix->get(), .target = target, .nll = exact};
  ref::HeadNll(args);
  args.normaliser = Normaliser::kSampled;
  args.nll = sampled;
  ref::HeadNll(args);
  EXPECT_NEAR(sampled[2], exact[2], 1e-3);
  // The rare token is in no sample: the other targets do not know of it.
  const double others = std::log(std::exp(3.0) + (n_vocab - 1) * std::exp(1.0));
  EXPECT_NEAR(sampled[0], others - 3, 1e-3);
  EXPECT_NEAR(sampled[1], others - 1, 1e-3);
}

}  // namespace
}  // namespace weir
