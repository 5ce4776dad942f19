// SPDX-License-Identifier: Apache-2.0
#include "ops/grouped_matmul.h"

#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

// Two matrices of 16 x 2, of which row o of matrix m is (m, o).
TEST(GroupedMatMul, EveryGroupHasItsMatrixAndBias) {
  std::vector<float> weights, bias(32);
  for (int m = 0; m < 2; ++m) {
    for (int o = 0; o < 16; ++o) weights.insert(weights.end(), {static_cast<float>(m), static_cast<float>(o)});
  }
  std::iota(bias.begin(), bias.end(), 100.0f);
  Ledger ledger;
  const MatrixSource source = {"w", DType::kF32, 32, 2, reinterpret_cast<const uint8_t*>(weights.data()), nullptr};
  auto w = ref::PrepareMatrix(source, ledger);
  ASSERT_TRUE(w.ok());
  const std::vector<float> x = {1, 2, 3, 4, 5, 6};
  std::vector<float> plain(3 * 16), biased(3 * 16);
  const RowGroup groups[] = {{1, 0, 2}, {0, 2, 1}};
  const StackedOut outs[] = {{w->get(), 16, plain.data(), nullptr}, {w->get(), 16, biased.data(), bias.data()}};
  ref::GroupedMatMul({x.data(), 3, 2, groups, outs, nullptr});
  for (int o = 0; o < 16; ++o) {
    EXPECT_EQ(plain[o], 1 + 2 * o);
    EXPECT_EQ(plain[16 + o], 3 + 4 * o);
    EXPECT_EQ(plain[32 + o], 6 * o);
    EXPECT_EQ(biased[o], 1 + 2 * o + 116 + o);
    EXPECT_EQ(biased[32 + o], 6 * o + 100 + o);
  }
}

}  // namespace
}  // namespace weir
