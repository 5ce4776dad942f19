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

}  // namespace
}  // namespace weir
