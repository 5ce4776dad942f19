// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "quant/format.h"

namespace weir {
namespace {

TEST(QuantizeRowQ8, ScaleCodesAndTies) {
  std::vector<float> x(96, 0.0f);
  x[0] = -127;
  x[1] = 0.5f;  // ties go to the even neighbour
  x[2] = 1.5f;
  x[3] = 126.4f;
  x[32 + 7] = 2;  // the second block has its own scale
  std::vector<int8_t> q(96, 99);
  std::vector<float> d(3, 99);
  QuantizeRowQ8(x.data(), 96, q.data(), d.data());
  EXPECT_EQ(d[0], 1.0f);
  EXPECT_EQ(q[0], -127);
  EXPECT_EQ(q[1], 0);
  EXPECT_EQ(q[2], 2);
  EXPECT_EQ(q[3], 126);
  EXPECT_EQ(d[1], 2 / 127.0f);
  EXPECT_EQ(q[32 + 7], 127);
  EXPECT_EQ(d[2], 0.0f);
  EXPECT_EQ(q[64], 0);
}

TEST(QuantizeRowQ8, NotFiniteIsSeenAndTinyIsZero) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    std::vector<float> x(64, 1.0f);
    x[31] = bad;
    x[32] = 2;
    std::vector<int8_t> q(64, 99);
    std::vector<float> d(2, 99);
    QuantizeRowQ8(x.data(), 64, q.data(), d.data());
    EXPECT_TRUE(std::isnan(d[0]));
    EXPECT_EQ(q[0], 0);
    EXPECT_EQ(d[1], 2 / 127.0f) << "one bad block spoils no other";
  }
  std::vector<float> x(32, 1e-38f);
  std::vector<int8_t> q(32, 99);
  float d = 99;
  QuantizeRowQ8(x.data(), 32, q.data(), &d);
  EXPECT_EQ(d, 0.0f);
  EXPECT_EQ(q[5], 0);
}

TEST(RefMatMul, SmallProductByHand) {
  const float w[] = {1, 2, 3, 4, 5, 6};  // [3, 2]
  const int32_t order[] = {2, 0, 1};
  Ledger ledger;
  Result<std::unique_ptr<Matrix>> matrix =
      ref::PrepareMatrix({"w", DType::kF32, 3, 2, reinterpret_cast<const uint8_t*>(w), order}, ledger);
  ASSERT_TRUE(matrix.ok());
  const float x[] = {1, 10, 0, 2, -1, 0};  // rows 3 apart
  const float bias[] = {100, 200, 300};
  float y[] = {1000, 1000, 1000, -5, 2000, 2000, 2000, -5};
  const MatMulOut out = {matrix->get(), y, 4, bias, true};
  ref::MatMul({x, 3, 2, 2, {&out, 1}, nullptr});
  const float expected[] = {1000 + 100 + 65, 1000 + 200 + 21, 1000 + 300 + 43, -5,
                            2000 + 100 + 4,  2000 + 200 + 0,  2000 + 300 + 2,  -5};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(y[i], expected[i]) << i;
  const int32_t ids[] = {2, 0};
  float rows[4];
  ref::EmbedRows(**matrix, ids, 2, rows);
  EXPECT_EQ(rows[0], 3);
  EXPECT_EQ(rows[3], 6);
}

TEST(RefMatMul, BlockFormatsMultiplyRoundedActivations) {
  // One block whose weights are all one: the product is the sum of the rounded activations.
  const std::vector<float> ones(32, 1.0f);
  std::vector<uint8_t> bytes(static_cast<size_t>(RowBytes(DType::kQ8_0, 32)));
  EncodeRow(DType::kQ8_0, ones.data(), 32, bytes.data());
  std::vector<float> one(32);
  DecodeRow(DType::kQ8_0, bytes.data(), 32, one.data());
  Ledger ledger;
  Result<std::unique_ptr<Matrix>> matrix =
      ref::PrepareMatrix({"w", DType::kQ8_0, 1, 32, bytes.data(), nullptr}, ledger);
  ASSERT_TRUE(matrix.ok());
  std::vector<float> x(32, 0.3f);
  x[0] = 127;
  float y = 0;
  const MatMulOut out = {matrix->get(), &y, 1, nullptr, false};
  ref::MatMul({x.data(), 32, 1, 32, {&out, 1}, nullptr});
  EXPECT_FLOAT_EQ(y, 127 * one[0]) << "0.3 of a step rounds to 0";
}

TEST(RefMatMul, RefusesWithoutLeavingBytesReserved) {
  const float w[] = {1, std::numeric_limits<float>::infinity()};
  const auto* data = reinterpret_cast<const uint8_t*>(w);
  Ledger ledger;
  EXPECT_EQ(ref::PrepareMatrix({"w", DType::kF32, 1, 2, data, nullptr}, ledger).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(ref::PrepareMatrix({"w", DType::kQ4_0, 1, 2, data, nullptr}, ledger).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(ref::PrepareMatrix({"w", DType::kF32, 1, 0, data, nullptr}, ledger).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(ref::PrepareMatrix({"w", DType::kF32, 0, 1, data, nullptr}, ledger).status().code(), StatusCode::kCorrupt);
  ledger.FailNth(1);
  EXPECT_EQ(ref::PrepareMatrix({"w", DType::kF32, 1, 1, data, nullptr}, ledger).status().code(),
            StatusCode::kOverBudget);
  EXPECT_EQ(ledger.used_bytes(), 0);
}

}  // namespace
}  // namespace weir
