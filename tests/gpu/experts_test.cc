// SPDX-License-Identifier: Apache-2.0
// What layers with experts need of a device, against the scalar reference.
#include "gpu/devices.h"

namespace weir::testing {
namespace {

class ExpertsTest : public DeviceTest {
 protected:
  std::vector<float> Normals(int64_t n) { return cpu::Normals(rng_, n); }
  Rng rng_{7};
};

// Groups of one row, of few and of many; a matrix that nobody uses; two outputs, one with a bias.
TEST_P(ExpertsTest, GroupedProducts) {
  constexpr int64_t kStack = 4, kOut[2] = {48, 16};
  const std::vector<RowGroup> groups = {{0, 0, 1}, {2, 1, 7}, {3, 8, 20}};
  const int64_t n_rows = 28;
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_K,
                           DType::kQ6_K, DType::kMXFP4}) {
    SCOPED_TRACE(InfoOf(type).name);
    const int64_t n_in = InfoOf(type).block_elements == 256 ? 512 : 96;
    const std::vector<float> x = Normals(n_rows * n_in), bias = Normals(kStack * kOut[1]);
    std::vector<float> y[2], scratch(static_cast<size_t>(ref_->MatMulScratchBytes(n_rows, n_in)) / 4 + 16);
    std::unique_ptr<Matrix> of_ref[2], of_device[2];
    for (int i = 0; i < 2; ++i) {
      const auto weights = cpu::Weights::Random(rng_, type, kStack * kOut[i], n_in);
      const MatrixSource source = {"w", type, kStack * kOut[i], n_in, weights.data(), nullptr};
      of_ref[i] = Prepare(*ref_, source);
      of_device[i] = Prepare(*backend_, source);
      y[i].resize(static_cast<size_t>(n_rows * kOut[i]));
    }
    const StackedOut outs[] = {{of_ref[0].get(), kOut[0], y[0].data(), nullptr},
                               {of_ref[1].get(), kOut[1], y[1].data(), bias.data()}};
    auto* const aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    ref_->GroupedMatMul({x.data(), n_rows, n_in, groups, outs, aligned});
    float* got[2] = {Poisoned(n_rows * kOut[0]), Poisoned(n_rows * kOut[1])};
    const StackedOut on[] = {{of_device[0].get(), kOut[0], got[0], nullptr},
                             {of_device[1].get(), kOut[1], got[1], Put(bias)}};
    backend_->GroupedMatMul({Put(x), n_rows, n_in, groups, on, Scratch(backend_->MatMulScratchBytes(n_rows, n_in))});
    // Many rows of plain weights multiply activations rounded to the weights' type.
    const double bound = type == DType::kBF16 ? 2e-2 : type == DType::kF16 ? 3e-3 : 2e-5;
    for (int i = 0; i < 2; ++i) EXPECT_LT(Distance(Get(got[i], n_rows * kOut[i]), y[i]), bound) << i;
  }
}

TEST_P(ExpertsTest, RowsGoAndComeBack) {
  for (const int64_t dim : {1, 300}) {
    const std::vector<int32_t> rows = {4, 0, 4, 2, 0, 4};
    const int64_t n = std::ssize(rows);
    const std::vector<float> all = Normals(5 * dim), weights = Normals(n), before = Normals(5 * dim);
    std::vector<float> picked(static_cast<size_t>(n * dim)), sums = before;
    ref_->GatherRows({all.data(), rows.data(), picked.data(), n, dim});
    ref_->ScatterAddRows({picked.data(), rows.data(), weights.data(), sums.data(), n, dim});
    float *batch = Poisoned(n * dim), *to = Put(before);
    backend_->GatherRows({Put(all), rows.data(), batch, n, dim});
    EXPECT_EQ(Get(batch, n * dim), picked);
    backend_->ScatterAddRows({batch, rows.data(), weights.data(), to, n, dim});
    EXPECT_LT(Distance(Get(to, 5 * dim), sums), 1e-6);
  }
}

TEST_P(ExpertsTest, GateRows) {
  const int64_t n_rows = 3, n_in = 70, dim = 40;
  const std::vector<float> x = Normals(n_rows * n_in), w = Normals(n_in), before = Normals(n_rows * dim);
  std::vector<float> y = before;
  ref_->GateRows({x.data(), w.data(), y.data(), n_rows, n_in, dim});
  float* const got = Put(before);
  backend_->GateRows({Put(x), Put(w), got, n_rows, n_in, dim});
  EXPECT_LT(Distance(Get(got, n_rows * dim), y), 1e-6);
}

TEST_P(ExpertsTest, Limits) {
  std::vector<float> gate = Normals(600), up = Normals(600);
  for (float& value : gate) value *= 6;
  for (float& value : up) value *= 6;
  gate[5] = up[9] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> y(gate.size()), clamped(gate.size());
  ref_->ClampedSwiGlu({gate.data(), up.data(), y.data(), 600});
  ref_->Clamp({-1, 2, gate.data(), clamped.data(), 600});
  float *got = Poisoned(600), *limited = Poisoned(600);
  backend_->ClampedSwiGlu({Put(gate), Put(up), got, 600});
  backend_->Clamp({-1, 2, Put(gate), limited, 600});
  const std::vector<float> values = Get(got, 600), bounded = Get(limited, 600);
  for (size_t i = 0; i < 600; ++i) {
    EXPECT_EQ(std::isnan(values[i]), std::isnan(y[i])) << i;
    EXPECT_EQ(std::isnan(bounded[i]), i == 5) << i;
    if (!std::isnan(y[i])) {
      EXPECT_NEAR(values[i], y[i], 1e-5 * (1 + std::fabs(y[i]))) << i;
    }
    if (i != 5) {
      EXPECT_EQ(bounded[i], clamped[i]) << i;
    }
  }
}

WEIR_ON_DEVICES(ExpertsTest);

}  // namespace
}  // namespace weir::testing
