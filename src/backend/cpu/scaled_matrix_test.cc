// SPDX-License-Identifier: Apache-2.0
#include "ops/scaled_matrix.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "quant/format.h"

namespace weir {
namespace {

constexpr int64_t kOut = 48, kIn = 128, kRows = 5;

class ScaledMatrixTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::vector<float> Random(int64_t n) {
    std::normal_distribution<float> normal;
    std::vector<float> out(static_cast<size_t>(n));
    for (float& x : out) x = normal(random_);
    return out;
  }
  // NVFP4, whose files have such scales.
  std::unique_ptr<Matrix> Prepare(int64_t n_out) {
    const std::vector<float> values = Random(n_out * kIn);
    std::vector<uint8_t> data(static_cast<size_t>(n_out * RowBytes(DType::kNVFP4, kIn)));
    for (int64_t o = 0; o < n_out; ++o) {
      EncodeRow(DType::kNVFP4, values.data() + o * kIn, kIn, data.data() + o * RowBytes(DType::kNVFP4, kIn));
    }
    MatrixSource source;
    source.name = "w";
    source.type = DType::kNVFP4;
    source.n_out = n_out;
    source.n_in = kIn;
    source.data = data.data();
    return std::move(backend_->PrepareMatrix(source, ledger_)).value();
  }
  std::unique_ptr<Matrix> Scaled(std::unique_ptr<Matrix> w, std::vector<float> scales) {
    return std::make_unique<ScaledMatrix>(std::move(w), std::move(scales), Reservation());
  }
  std::vector<uint8_t> Scratch() const {
    return std::vector<uint8_t>(static_cast<size_t>(backend_->MatMulScratchBytes(64, kIn)) + 64);
  }
  static void* Aligned(std::vector<uint8_t>& bytes) {
    return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(bytes.data()) + 63) / 64 * 64);
  }

  Ledger ledger_;
  std::unique_ptr<Backend> backend_ = GetParam() == "ref" ? MakeRefBackend() : MakeCpuBackend(2);
  std::mt19937 random_{11};
};

// One call with a scaled and an ordinary matrix, rows apart, with and without a bias and a sum.
TEST_P(ScaledMatrixTest, AProductIsMultipliedBeforeBiasAndSum) {
  const std::vector<float> x = Random(kRows * kIn), bias = Random(kOut), before = Random(kRows * 2 * kOut);
  const auto other = Prepare(kOut), scaled = Scaled(Prepare(kOut), {0.003f});
  const Matrix& inner = static_cast<const ScaledMatrix&>(*scaled).inner();
  EXPECT_EQ(scaled->bytes(), inner.bytes());
  std::vector<uint8_t> scratch = Scratch();
  const auto run = [&](const Matrix& w, const float* b, bool accumulate, std::vector<float>* y, std::vector<float>* z) {
    *y = *z = before;
    const MatMulOut outs[] = {{&w, y->data(), 2 * kOut, b, accumulate}, {other.get(), z->data(), 2 * kOut}};
    backend_->MatMul({x.data(), kIn, kRows, kIn, outs, Aligned(scratch)});
  };
  std::vector<float> plain, got, want_other, got_other;
  run(inner, nullptr, false, &plain, &want_other);
  for (const bool with_bias : {false, true}) {
    for (const bool accumulate : {false, true}) {
      run(*scaled, with_bias ? bias.data() : nullptr, accumulate, &got, &got_other);
      EXPECT_EQ(got_other, want_other);
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t o = 0; o < 2 * kOut; ++o) {
          const auto at = static_cast<size_t>(r * 2 * kOut + o);
          if (o >= kOut) {
            EXPECT_EQ(got[at], before[at]);
            continue;
          }
          const double want =
              0.003 * plain[at] + (with_bias ? bias[static_cast<size_t>(o)] : 0) + (accumulate ? before[at] : 0);
          EXPECT_NEAR(got[at], want, 2e-6) << with_bias << accumulate << " at " << r << ", " << o;
        }
      }
    }
  }
}

TEST_P(ScaledMatrixTest, AStackHasAScaleForEachOfItsMatrices) {
  const std::vector<float> scales = {0.5f, 7, 0.01f};
  const std::vector<float> x = Random(kRows * kIn), bias = Random(3 * kOut);
  const auto other = Prepare(3 * kOut), scaled = Scaled(Prepare(3 * kOut), scales);
  const Matrix& inner = static_cast<const ScaledMatrix&>(*scaled).inner();
  std::vector<uint8_t> scratch = Scratch();
  const RowGroup groups[] = {{0, 0, 2}, {2, 2, 3}};
  const auto run = [&](const Matrix& w, const float* b) {
    std::vector<float> y(static_cast<size_t>(kRows * kOut)), z = y;
    const StackedOut outs[] = {{other.get(), kOut, z.data()}, {&w, kOut, y.data(), b}};
    backend_->GroupedMatMul({x.data(), kRows, kIn, groups, outs, Aligned(scratch)});
    return y;
  };
  const std::vector<float> plain = run(inner, nullptr), got = run(*scaled, bias.data());
  for (const RowGroup& group : groups) {
    for (int64_t r = group.first_row; r < group.first_row + group.n_rows; ++r) {
      for (int64_t o = 0; o < kOut; ++o) {
        const float scale = scales[static_cast<size_t>(group.matrix)], b = bias[group.matrix * kOut + o];
        EXPECT_NEAR(got[r * kOut + o], scale * plain[r * kOut + o] + b, 1e-5 * (1 + scale));
      }
    }
  }
}

// A stack whose matrices are gate and up of an expert is read as one of twice as many.
TEST_P(ScaledMatrixTest, PartsOfAMatrixHaveItsScale) {
  const std::vector<float> scales = {0.5f, 7, 0.01f}, x = Random(3 * kIn);
  const auto scaled = Scaled(Prepare(3 * kOut), scales);
  const Matrix& inner = static_cast<const ScaledMatrix&>(*scaled).inner();
  std::vector<uint8_t> scratch = Scratch();
  constexpr int64_t kPart = kOut / 3;
  const RowGroup groups[] = {{0, 0, 1}, {5, 1, 1}, {8, 2, 1}};
  const auto run = [&](const Matrix& w) {
    std::vector<float> y(static_cast<size_t>(3 * kPart));
    const StackedOut out = {&w, kPart, y.data()};
    backend_->GroupedMatMul({x.data(), 3, kIn, groups, {&out, 1}, Aligned(scratch)});
    return y;
  };
  const std::vector<float> plain = run(inner), got = run(*scaled);
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t o = 0; o < kPart; ++o) EXPECT_EQ(got[r * kPart + o], scales[r] * plain[r * kPart + o]) << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ScaledMatrixTest, ::testing::Values("ref", "cpu"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weir
