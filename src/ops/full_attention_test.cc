// SPDX-License-Identifier: Apache-2.0
#include "ops/full_attention.h"

#include <cmath>

#include "gtest/gtest.h"

namespace weir {
namespace {

// Two heads of one number each, so that results can be computed by hand.
TEST(FullAttention, MixesEveryRowForEveryQuery) {
  const float q[] = {0, 1, 1, 0}, k[] = {0, 1, 0, 2, std::log(2.0f), 3}, v[] = {1, 10, 2, 20, 3, 30};
  float out[4];
  FullAttentionArgs args;
  args.n_heads = 2;
  args.head_dim = 1;
  args.scale = 1;
  args.q = q;
  args.k = k;
  args.v = v;
  args.out = out;
  args.q_stride = args.kv_stride = args.out_stride = 2;
  args.n_q = 2;
  args.n_kv = 3;
  ref::FullAttention(args);
  EXPECT_FLOAT_EQ(out[0], 2);  // a query of zero: the mean
  const double e = std::exp(1.0);
  EXPECT_FLOAT_EQ(out[1], static_cast<float>((10 + 20 * e + 30 * e * e) / (1 + e + e * e)));
  EXPECT_FLOAT_EQ(out[2], (1 + 2 + 2 * 3) / 4.0f);  // the last key weighs twice, the first row sees it too
  EXPECT_FLOAT_EQ(out[3], 20);

  // The weights used: one head's rows, from any row on.
  float weights[6];
  ref::FullAttentionWeights({args, 0, 0, 2, weights});
  for (int j = 0; j < 3; ++j) EXPECT_FLOAT_EQ(weights[j], 1.0f / 3);
  EXPECT_FLOAT_EQ(weights[3], 0.25f);
  EXPECT_FLOAT_EQ(weights[5], 0.5f);
  float row[3];
  ref::FullAttentionWeights({args, 1, 0, 1, row});
  EXPECT_FLOAT_EQ(row[2], static_cast<float>(e * e / (1 + e + e * e)));
  ref::FullAttentionWeights({args, 0, 1, 1, row});
  EXPECT_EQ(row[2], weights[5]);

  // Keys that are not equally far apart, and scores that no exponential holds.
  const float far[] = {0, 1, 0, 2, 0, 5}, steep[] = {0, 1000, 1, 0};
  args.k = far;
  ref::FullAttentionWeights({args, 1, 0, 1, row});
  EXPECT_FLOAT_EQ(row[2], static_cast<float>(std::exp(5.0) / (std::exp(1.0) + std::exp(2.0) + std::exp(5.0))));
  args.q = steep;
  ref::FullAttention(args);
  EXPECT_FLOAT_EQ(out[1], 30);
  ref::FullAttentionWeights({args, 1, 0, 1, row});
  EXPECT_FLOAT_EQ(row[2], 1);
}

}  // namespace
}  // namespace weir
