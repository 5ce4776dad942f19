// SPDX-License-Identifier: Apache-2.0
#include "ops/delta_rule.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

// alpha so large that softplus is the identity, beta so large that the rate is 1.
constexpr float kLarge = 40;

TEST(DeltaRule, StoresAValueUnderItsKeyAndReplacesIt) {
  // One head, keys of size 2, values of size 3; no decay (a = 0).
  const float keys[] = {1, 0, 0, 1, 1, 0}, values[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, queries[] = {1, 0, 1, 1, 1, 0};
  const float gates[] = {kLarge, kLarge, kLarge}, zero[] = {0};
  float state[6] = {}, out[9], scratch[6];
  ref::DeltaRule({.q = queries,
                  .k = keys,
                  .v = values,
                  .alpha = gates,
                  .beta = gates,
                  .a = zero,
                  .dt_bias = zero,
                  .state = state,
                  .out = out,
                  .scratch = scratch,
                  .n_rows = 3,
                  .n_k_heads = 1,
                  .n_v_heads = 1,
                  .d_k = 2,
                  .d_v = 3});
  const float expected[] = {1, 2, 3, 5, 7, 9, 7, 8, 9};  // the second query reads both keys; the third row replaces
  for (int i = 0; i < 9; ++i) EXPECT_FLOAT_EQ(out[i], expected[i]) << i;
  const float kept[] = {7, 8, 9, 4, 5, 6};
  for (int i = 0; i < 6; ++i) EXPECT_FLOAT_EQ(state[i], kept[i]) << i;
}

TEST(DeltaRule, DecaysAndWritesInPart) {
  const float key[] = {1}, query[] = {1}, value[] = {8}, alpha[] = {0}, beta[] = {0}, a[] = {-2}, bias[] = {kLarge};
  float state[] = {4}, out[1], scratch[2];
  const auto read = [&](float bias_of_step) {
    const float dt_bias[] = {bias_of_step};
    ref::DeltaRule({.q = query,
                    .k = key,
                    .v = value,
                    .alpha = alpha,
                    .beta = beta,
                    .a = a,
                    .dt_bias = dt_bias,
                    .state = state,
                    .out = out,
                    .scratch = scratch,
                    .n_rows = 1,
                    .n_k_heads = 1,
                    .n_v_heads = 1,
                    .d_k = 1,
                    .d_v = 1});
    return out[0];
  };
  // g = exp(-2 log(1 + exp(0))) = 1/4: 4 decays to 1, and half of what is missing to 8 is added.
  EXPECT_FLOAT_EQ(read(0), 4.5f);
  EXPECT_FLOAT_EQ(state[0], 4.5f);
  EXPECT_FLOAT_EQ(read(bias[0]), 4.0f);  // exp(-80): nothing is left
}

TEST(DeltaRule, ValueHeadsShareKeysInTurnsOrInGroups) {
  const float keys[] = {1, 0, 0, 1}, queries[] = {1, 0, 0, 1}, values[] = {1, 2, 3, 4};  // 2 heads of keys, 4 of values
  const float gates[] = {kLarge, kLarge, kLarge, kLarge}, zero[] = {0, 0, 0, 0};
  for (const bool grouped : {false, true}) {
    float state[8] = {}, out[4], scratch[8];
    ref::DeltaRule({.q = queries,
                    .k = keys,
                    .v = values,
                    .alpha = gates,
                    .beta = gates,
                    .a = zero,
                    .dt_bias = zero,
                    .state = state,
                    .out = out,
                    .scratch = scratch,
                    .n_rows = 1,
                    .n_k_heads = 2,
                    .n_v_heads = 4,
                    .d_k = 2,
                    .d_v = 1,
                    .grouped = grouped});
    for (int h = 0; h < 4; ++h) {
      const int key_head = grouped ? h / 2 : h % 2;
      EXPECT_FLOAT_EQ(state[2 * h + key_head], static_cast<float>(h + 1)) << h;
      EXPECT_FLOAT_EQ(state[2 * h + 1 - key_head], 0) << h;
    }
  }
}

}  // namespace
}  // namespace weir
