// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/grouped_matmul.h"

#include <limits>

#include "backend/backend.h"
#include "backend/cpu/testing.h"
#include "gtest/gtest.h"

namespace weir::cpu {
namespace {

const float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kStack = 5, kOut[2] = {48, 112};

struct Stacks {
  std::unique_ptr<Matrix> w[2];
};

Stacks Prepare(Backend& backend, DType type, const Weights (&weights)[2], int64_t n_in, Ledger& ledger) {
  Stacks out;
  for (int i = 0; i < 2; ++i) {
    auto w = backend.PrepareMatrix({"w", type, kStack * kOut[i], n_in, weights[i].data(), nullptr}, ledger);
    EXPECT_TRUE(w.ok()) << w.status().message();
    out.w[i] = std::move(w).value();
  }
  return out;
}

// Both products of a call, one after the other.
std::vector<float> Multiply(Backend& backend, const Stacks& stacks, const std::vector<RowGroup>& groups,
                            const std::vector<float>& x, int64_t n_in, const float* bias) {
  const int64_t n_rows = std::ssize(x) / n_in;
  std::vector<float> y(static_cast<size_t>(n_rows * (kOut[0] + kOut[1])), kNan);
  std::vector<uint8_t> scratch = Scratch(backend.MatMulScratchBytes(n_rows, n_in));
  const StackedOut outs[] = {{stacks.w[0].get(), kOut[0], y.data(), nullptr},
                             {stacks.w[1].get(), kOut[1], y.data() + n_rows * kOut[0], bias}};
  backend.GroupedMatMul({x.data(), n_rows, n_in, groups, outs, Aligned(scratch)});
  return y;
}

class GroupedMatMulTest : public testing::TestWithParam<DType> {};

// Groups of one row and of more than a task's, matrices that nobody uses; the same bytes for any number of threads, and
// for a row alone.
TEST_P(GroupedMatMulTest, EqualsReference) {
  const DType type = GetParam();
  Rng rng(5);
  Ledger ledger;
  const int64_t block = InfoOf(type).block_elements, n_in = block == 1 ? 67 : block == 32 ? 96 : 512;
  const Weights weights[2] = {Weights::Random(rng, type, kStack * kOut[0], n_in),
                              Weights::Random(rng, type, kStack * kOut[1], n_in)};
  const std::unique_ptr<Backend> reference = MakeRefBackend();
  std::unique_ptr<Backend> cpu[3];
  for (int t = 0; t < 3; ++t) cpu[t] = MakeCpuBackend(t + 1);
  const Stacks expected_w = Prepare(*reference, type, weights, n_in, ledger);
  const Stacks w = Prepare(*cpu[0], type, weights, n_in, ledger);
  const std::vector<float> bias = Normals(rng, kStack * kOut[1]);
  const std::vector<std::vector<RowGroup>> cases = {
      {{3, 0, 1}}, {{0, 0, 1}, {1, 1, 1}, {4, 2, 1}}, {{0, 0, 7}, {2, 7, 100}, {4, 107, 3}}};
  for (const std::vector<RowGroup>& groups : cases) {
    const int64_t n_rows = groups.back().first_row + groups.back().n_rows;
    const std::vector<float> x = Normals(rng, n_rows * n_in);
    const std::vector<float> expected = Multiply(*reference, expected_w, groups, x, n_in, bias.data());
    float largest = 0;
    for (const float v : expected) largest = std::max(largest, std::fabs(v));
    ForEachTarget([&] {
      const std::vector<float> got = Multiply(*cpu[0], w, groups, x, n_in, bias.data());
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 2e-6f * (largest + 10)) << i;
      for (int t = 1; t < 3; ++t) {
        const std::vector<float> other = Multiply(*cpu[t], w, groups, x, n_in, bias.data());
        ASSERT_EQ(std::memcmp(other.data(), got.data(), got.size() * sizeof(float)), 0) << t + 1 << " threads";
      }
      const RowGroup& last = groups.back();
      const std::vector<float> row(x.end() - n_in, x.end());
      const std::vector<float> alone = Multiply(*cpu[1], w, {{last.matrix, 0, 1}}, row, n_in, bias.data());
      ASSERT_EQ(std::memcmp(alone.data() + kOut[0], got.data() + got.size() - kOut[1], kOut[1] * sizeof(float)), 0);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GroupedMatMulTest, testing::ValuesIn(WeightTypes()),
                         [](const auto& info) { return InfoOf(info.param).name; });

}  // namespace
}  // namespace weir::cpu
