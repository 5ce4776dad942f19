// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/matmul.h"

#include <cmath>
#include <limits>

#include "backend/backend.h"
#include "backend/cpu/pack.h"
#include "backend/cpu/testing.h"
#include "gtest/gtest.h"
#include "quant/block_formats.h"
#include "quant/format.h"
#include "quant/q3_k.h"
#include "quant/q4_k.h"
#include "quant/q6_k.h"

namespace weir::cpu {
namespace {

const float kNan = std::numeric_limits<float>::quiet_NaN();

struct Call {
  int64_t n_rows, x_stride, y_stride;
  const float* x;
  const float* bias;
  bool accumulate;
};

// One product through a backend, its output poisoned first unless it accumulates.
std::vector<float> Multiply(Backend& backend, const Matrix& w, const Call& call, float fill) {
  std::vector<float> y(static_cast<size_t>(call.n_rows * call.y_stride), fill);
  std::vector<uint8_t> scratch = Scratch(backend.MatMulScratchBytes(call.n_rows, w.n_in()));
  const MatMulOut out = {&w, y.data(), call.y_stride, call.bias, call.accumulate};
  backend.MatMul({call.x, call.x_stride, call.n_rows, w.n_in(), {&out, 1}, Aligned(scratch)});
  return y;
}

std::unique_ptr<Matrix> Prepare(Backend& backend, const MatrixSource& source, Ledger& ledger) {
  Result<std::unique_ptr<Matrix>> matrix = backend.PrepareMatrix(source, ledger);
  EXPECT_TRUE(matrix.ok()) << matrix.status().message();
  return matrix.ok() ? std::move(matrix).value() : nullptr;
}

class MatMulTest : public testing::TestWithParam<DType> {};

TEST_P(MatMulTest, EqualsReference) {
  const DType type = GetParam();
  Rng rng(1);
  Ledger ledger;
  const std::unique_ptr<Backend> reference = MakeRefBackend();
  std::unique_ptr<Backend> cpu[3];
  for (int t = 0; t < 3; ++t) cpu[t] = MakeCpuBackend(t + 1);
  const int64_t block = InfoOf(type).block_elements;
  for (const int64_t n_out : {1, 7, 16, 33, 150}) {
    const int64_t n_in = block == 1 ? 67 : block == 32 ? 96 : 512;
    const Weights weights = Weights::Random(rng, type, n_out, n_in);
    const MatrixSource source = {"w", type, n_out, n_in, weights.data(), nullptr};
    const std::unique_ptr<Matrix> expected_w = Prepare(*reference, source, ledger);
    const std::unique_ptr<Matrix> w = Prepare(*cpu[0], source, ledger);
    const std::vector<float> bias = Normals(rng, n_out);
    for (const int64_t n_rows : {1, 2, 3, 4, 5, 6, 7, 13, 100}) {
      const int64_t x_stride = n_in + 3, y_stride = n_out + 5;
      const std::vector<float> x = Normals(rng, n_rows * x_stride);
      const bool accumulate = n_rows % 2 == 0;
      const Call call = {n_rows, x_stride, y_stride, x.data(), n_rows % 3 == 0 ? nullptr : bias.data(), accumulate};
      const float fill = accumulate ? 0.75f : kNan;
      const std::vector<float> expected = Multiply(*reference, *expected_w, call, fill);
      float largest = 0;
      for (float v : expected) largest = std::max(largest, std::isnan(v) ? 0 : std::fabs(v));
      ForEachTarget([&] {
        const std::vector<float> got = Multiply(*cpu[0], *w, call, fill);
        for (int64_t r = 0; r < n_rows; ++r) {
          for (int64_t o = 0; o < n_out; ++o) {
            ASSERT_NEAR(got[r * y_stride + o], expected[r * y_stride + o], 2e-6f * (largest + 10))
                << InfoOf(type).name << " row " << r << " of " << n_rows << ", output " << o << " of " << n_out;
          }
          for (int64_t o = n_out; o < y_stride; ++o) {
            const float untouched = got[r * y_stride + o];
            ASSERT_TRUE(accumulate ? untouched == fill : std::isnan(untouched)) << "wrote past the row's end";
          }
        }
        for (int t = 1; t < 3; ++t) {
          const std::vector<float> other = Multiply(*cpu[t], *w, call, fill);
          ASSERT_EQ(std::memcmp(other.data(), got.data(), got.size() * sizeof(float)), 0) << t + 1 << " threads";
        }
      });
    }
  }
}

// A row's result must not depend on the rows computed with it.
TEST_P(MatMulTest, EqualForEveryBatchSize) {
  const DType type = GetParam();
  Rng rng(2);
  Ledger ledger;
  const int64_t n_in = 1280, n_out = 203, n_rows = 101;
  const Weights weights = Weights::Random(rng, type, n_out, n_in);
  const std::unique_ptr<Backend> cpu = MakeCpuBackend(2);
  const std::unique_ptr<Matrix> w = Prepare(*cpu, {"w", type, n_out, n_in, weights.data(), nullptr}, ledger);
  const std::vector<float> x = Normals(rng, n_rows * n_in);
  ForEachTarget([&] {
    const std::vector<float> whole = Multiply(*cpu, *w, {n_rows, n_in, n_out, x.data(), nullptr, false}, kNan);
    for (const int64_t n : {1, 2, 3, 4, 5, 9, 97}) {
      const int64_t from = n_rows - n;
      const std::vector<float> part =
          Multiply(*cpu, *w, {n, n_in, n_out, x.data() + from * n_in, nullptr, false}, kNan);
      ASSERT_EQ(std::memcmp(part.data(), whole.data() + from * n_out, part.size() * sizeof(float)), 0) << n << " rows";
    }
  });
}

// Also tests layouts that another one supersedes, such as the one that only decodes.
TEST_P(MatMulTest, EveryLayoutThatTakesTheTypeEqualsReference) {
  const DType type = GetParam();
  Rng rng(7);
  Ledger ledger;
  ThreadPool pool(2);
  const std::unique_ptr<Backend> reference = MakeRefBackend(), cpu = MakeCpuBackend(2);
  const int64_t n_in = 512, n_out = 37;
  const Weights weights = Weights::Random(rng, type, n_out, n_in);
  const MatrixSource source = {"w", type, n_out, n_in, weights.data(), nullptr};
  const std::unique_ptr<Matrix> expected_w = Prepare(*reference, source, ledger);
  const std::vector<float> bias = Normals(rng, n_out);
  for (const WeightsInfo* layout : AllWeightsInfos()) {
    if (layout->suits(type) == Suits::kNot) continue;
    Result<std::unique_ptr<Matrix>> w = PackedMatrix::Make(source, ledger, pool, layout);
    ASSERT_TRUE(w.ok()) << w.status().message();
    for (int64_t o = 0; o < n_out; ++o) {
      std::vector<float> row(static_cast<size_t>(n_in)), decoded(row.size());
      DecodeRow(type, weights.data() + o * RowBytes(type, n_in), n_in, row.data());
      static_cast<const PackedMatrix&>(**w).DecodeRow(o, decoded.data());
      ASSERT_EQ(row, decoded) << "row " << o;
    }
    for (const int64_t n_rows : {1, 3, 100}) {
      const std::vector<float> x = Normals(rng, n_rows * n_in);
      const Call call = {n_rows, n_in, n_out, x.data(), bias.data(), true};
      const std::vector<float> expected = Multiply(*reference, *expected_w, call, 0.75f);
      const std::vector<float> got = Multiply(*cpu, **w, call, 0.75f);
      float largest = 0;
      for (const float v : expected) largest = std::max(largest, std::fabs(v));
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 2e-6f * (largest + 10)) << n_rows;
    }
  }
}

TEST_P(MatMulTest, ThreeProductsOfOneCall) {
  const DType type = GetParam();
  Rng rng(3);
  Ledger ledger;
  const int64_t n_in = 256, n_rows = 5;
  const std::unique_ptr<Backend> cpu = MakeCpuBackend(3);
  const std::vector<float> x = Normals(rng, n_rows * n_in);
  const int64_t n_outs[3] = {40, 16, 130};
  std::unique_ptr<Matrix> w[3];
  std::vector<float> together[3];
  MatMulOut outs[3];
  for (int i = 0; i < 3; ++i) {
    // The middle one is plain: formats may mix in a call.
    const DType of = i == 1 ? DType::kF32 : type;
    const Weights weights = Weights::Random(rng, of, n_outs[i], n_in);
    w[i] = Prepare(*cpu, {"w", of, n_outs[i], n_in, weights.data(), nullptr}, ledger);
    together[i].assign(static_cast<size_t>(n_rows * n_outs[i]), kNan);
    outs[i] = {w[i].get(), together[i].data(), n_outs[i], nullptr, false};
  }
  std::vector<uint8_t> scratch = Scratch(cpu->MatMulScratchBytes(n_rows, n_in));
  cpu->MatMul({x.data(), n_in, n_rows, n_in, outs, Aligned(scratch)});
  for (int i = 0; i < 3; ++i) {
    const std::vector<float> alone = Multiply(*cpu, *w[i], {n_rows, n_in, n_outs[i], x.data(), nullptr, false}, kNan);
    ASSERT_EQ(alone, together[i]) << i;
  }
}

TEST_P(MatMulTest, BrokenActivationsStayVisible) {
  const DType type = GetParam();
  Rng rng(4);
  Ledger ledger;
  const int64_t n_in = 256, n_out = 20, n_rows = 3;
  const std::unique_ptr<Backend> cpu = MakeCpuBackend(1);
  const Weights weights = Weights::Random(rng, type, n_out, n_in);
  const std::unique_ptr<Matrix> w = Prepare(*cpu, {"w", type, n_out, n_in, weights.data(), nullptr}, ledger);
  std::vector<float> x = Normals(rng, n_rows * n_in);
  x[n_in + 77] = kNan;
  ForEachTarget([&] {
    const std::vector<float> y = Multiply(*cpu, *w, {n_rows, n_in, n_out, x.data(), nullptr, false}, 0);
    for (int64_t o = 0; o < n_out; ++o) {
      EXPECT_TRUE(std::isfinite(y[o]));
      EXPECT_TRUE(std::isnan(y[n_out + o]));
      EXPECT_TRUE(std::isfinite(y[2 * n_out + o]));
    }
  });
}

// Weights of 16 bits with rounded activations, whose last block may be short. The error is that of two factors rounded
// to 14 bits of their blocks' largest; with normally distributed ones it is smaller than that of activations in F16.
class HalfsTest : public testing::TestWithParam<DType> {};

TEST_P(HalfsTest, LosesLessThanActivationsInF16) {
  const DType type = GetParam();
  Rng rng(8);
  Ledger ledger;
  std::unique_ptr<Backend> cpu[2] = {MakeCpuBackend(1), MakeCpuBackend(2)};
  for (const auto [n_out, n_in] : {std::pair<int64_t, int64_t>{37, 512}, {16, 67}, {150, 1}, {33, 700}}) {
    const Weights weights = Weights::Random(rng, type, n_out, n_in);
    const std::unique_ptr<Matrix> w = Prepare(*cpu[0], {"w", type, n_out, n_in, weights.data(), nullptr}, ledger);
    const std::vector<float> bias = Normals(rng, n_out);
    std::vector<float> row(static_cast<size_t>(n_in));
    for (const int64_t n_rows : {kHalfsRows, kHalfsRows + 1, kTaskRows + 17}) {
      const int64_t x_stride = n_in + 3, y_stride = n_out + 5;
      const std::vector<float> x = Normals(rng, n_rows * x_stride);
      ForEachTarget([&] {
        std::vector<float> got[2];
        for (int t = 0; t < 2; ++t) {
          got[t].assign(static_cast<size_t>(n_rows * y_stride), 0.75f);
          std::vector<uint8_t> scratch = Scratch(cpu[t]->RoundedMatMulScratchBytes(n_rows, n_in));
          const MatMulOut out = {w.get(), got[t].data(), y_stride, bias.data(), true};
          cpu[t]->MatMul({x.data(), x_stride, n_rows, n_in, {&out, 1}, Aligned(scratch), true});
        }
        ASSERT_EQ(got[0], got[1]);
        double error = 0, of_f16 = 0;
        for (int64_t o = 0; o < n_out; ++o) {
          DecodeRow(type, weights.data() + o * RowBytes(type, n_in), n_in, row.data());
          for (int64_t r = 0; r < n_rows; ++r) {
            double exact = 0.75 + bias[o], in_f16 = exact;
            for (int64_t k = 0; k < n_in; ++k) {
              const float value = x[r * x_stride + k];
              exact += double{value} * row[k];
              in_f16 += double{F16ToF32(F32ToF16(value))} * row[k];
            }
            error += std::pow(got[0][r * y_stride + o] - exact, 2);
            of_f16 += std::pow(in_f16 - exact, 2);
            ASSERT_NEAR(got[0][r * y_stride + o], exact, 2e-3 * std::sqrt(static_cast<double>(n_in))) << r << " " << o;
          }
        }
        EXPECT_LT(std::sqrt(error), (n_in == 1 ? 1.5 : 0.8) * std::sqrt(of_f16)) << n_out << " x " << n_in;
        for (int64_t o = n_out; o < y_stride; ++o) ASSERT_EQ(got[0][o], 0.75f) << "wrote past the row's end";
      });
    }
  }
}

TEST_P(HalfsTest, BrokenAndEmptyActivationsStayVisible) {
  const DType type = GetParam();
  Rng rng(9);
  Ledger ledger;
  const int64_t n_in = 70, n_out = 20, n_rows = kHalfsRows;
  const std::unique_ptr<Backend> cpu = MakeCpuBackend(1);
  Weights weights = Weights::Random(rng, type, n_out, n_in);
  std::fill_n(weights.data() + RowBytes(type, n_in), RowBytes(type, n_in), uint8_t{0});
  const std::unique_ptr<Matrix> w = Prepare(*cpu, {"w", type, n_out, n_in, weights.data(), nullptr}, ledger);
  std::vector<float> x = Normals(rng, n_rows * n_in);
  x[n_in + 69] = kNan;
  x[2 * n_in] = std::numeric_limits<float>::infinity();
  std::fill_n(x.begin() + 3 * n_in, n_in, 0.0f);
  std::vector<uint8_t> scratch = Scratch(cpu->RoundedMatMulScratchBytes(n_rows, n_in));
  ForEachTarget([&] {
    std::vector<float> y(static_cast<size_t>(n_rows * n_out), 1);
    const MatMulOut out = {w.get(), y.data(), n_out, nullptr, false};
    cpu->MatMul({x.data(), n_in, n_rows, n_in, {&out, 1}, Aligned(scratch), true});
    for (int64_t o = 0; o < n_out; ++o) {
      EXPECT_TRUE(std::isfinite(y[o]));
      EXPECT_TRUE(std::isnan(y[n_out + o]));
      EXPECT_FALSE(std::isfinite(y[2 * n_out + o]));
      EXPECT_EQ(y[3 * n_out + o], 0);
    }
    EXPECT_EQ(y[1], 0);
  });
}

std::string TypeName(const testing::TestParamInfo<DType>& info) { return InfoOf(info.param).name; }
INSTANTIATE_TEST_SUITE_P(Types, MatMulTest, testing::ValuesIn(WeightTypes()), TypeName);
INSTANTIATE_TEST_SUITE_P(Types, HalfsTest, testing::Values(DType::kF16, DType::kBF16), TypeName);

// With scales of one and whole activations every step is exact, so all targets must give the reference's bits: any lost
// carry, saturation or wrong offset shows.
class ExactTest : public testing::TestWithParam<DType> {};

std::vector<DType> CodedTypes() {
  std::vector<DType> types = WeightTypes();
  std::erase_if(types, [](DType type) { return !CodesOf(type).has_codes(); });
  return types;
}

void SetScalesToOne(DType type, uint8_t* row, int64_t n_in, Rng& rng) {
  const CodeLayout codes = CodesOf(type);
  const uint16_t one = F32ToF16(1), three = F32ToF16(3);
  for (int64_t b = 0; b < n_in / InfoOf(type).block_elements; ++b, row += InfoOf(type).block_bytes) {
    if (type == DType::kQ3_K) {
      std::memcpy(row + offsetof(BlockQ3_K, d), &one, 2);
      // Scales of -3 to 3, with 32 added: low nibbles, then upper bits.
      for (int i = 0; i < 12; ++i) row[offsetof(BlockQ3_K, scales) + i] = 0;
      for (int g = 0; g < BlockQ3_K::kGroups; ++g) {
        const int scale = static_cast<int>(rng.Below(7)) - 3 + 32;
        row[offsetof(BlockQ3_K, scales) + g % 8] |= static_cast<uint8_t>((scale & 15) << (g / 8 * 4));
        row[offsetof(BlockQ3_K, scales) + 8 + g % 4] |= static_cast<uint8_t>((scale >> 4) << (g / 4 * 2));
      }
      continue;
    }
    if (type == DType::kQ6_K) {
      std::memcpy(row + offsetof(BlockQ6_K, d), &one, 2);
      for (int i = 0; i < 16; ++i) row[offsetof(BlockQ6_K, scales) + i] = static_cast<uint8_t>(rng.Below(7) - 3);
      continue;
    }
    if (type == DType::kMXFP4) {
      row[0] = 128;
      continue;
    }
    if (type == DType::kNVFP4) {
      for (int g = 0; g < 4; ++g) row[g] = 0x40;  // 2, of which the scale is half
      continue;
    }
    std::memcpy(row, &one, 2);
    if (type == DType::kIQ4_XS) {
      // Scales of -3 to 3, with 32 added: low nibbles, then upper bits.
      for (int i = 2; i < 8; ++i) row[i] = 0;
      for (int g = 0; g < 8; ++g) {
        const int scale = static_cast<int>(rng.Below(7)) - 3 + 32;
        row[2 + g / 4] |= static_cast<uint8_t>((scale >> 4) << (2 * (g % 4)));
        row[4 + g / 2] |= static_cast<uint8_t>((scale & 15) << (g % 2 * 4));
      }
    }
    if (codes.has_addend()) std::memcpy(row + 2, &three, 2);
    if (codes.scales == ScaleKind::kSuper) {
      // Group scales up to 15: sums of whole rows must stay below 2^24.
      for (int i = 0; i < 12; ++i) row[offsetof(BlockQ4_K, scales) + i] &= 15;
    }
  }
}

TEST_P(ExactTest, IntegersOnEveryTarget) {
  const DType type = GetParam();
  Rng rng(5);
  Ledger ledger;
  const int64_t n_in = 256, n_out = 37, n_rows = 9;
  const std::unique_ptr<Backend> reference = MakeRefBackend(), cpu = MakeCpuBackend(2);
  // Random codes, the smallest, the largest: of unsigned codes 0 and 255, of signed ones 128 and 127.
  for (const int fill : {-1, 0, 127, 128, 255}) {
    std::vector<uint8_t> bytes(static_cast<size_t>(n_out * RowBytes(type, n_in)));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(fill < 0 ? rng.Below(256) : fill);
    for (int64_t o = 0; o < n_out; ++o) SetScalesToOne(type, bytes.data() + o * RowBytes(type, n_in), n_in, rng);
    const CodeBlock first = FormatOf(type).read_codes(bytes.data(), 0);
    const bool d_is_one = CodesOf(type).scales == ScaleKind::kPower ? first.sub[0] == 128 : first.d == F32ToF16(1);
    ASSERT_TRUE(d_is_one && (!CodesOf(type).has_addend() || first.m == F32ToF16(3)))
        << "SetScalesToOne() does not know where the scales of " << InfoOf(type).name << " are";
    const MatrixSource source = {"w", type, n_out, n_in, bytes.data(), nullptr};
    const std::unique_ptr<Matrix> expected_w = Prepare(*reference, source, ledger), w = Prepare(*cpu, source, ledger);
    std::vector<float> x(static_cast<size_t>(n_rows * n_in));
    for (int64_t i = 0; i < n_rows * n_in; ++i) {
      const int64_t r = i / n_in;
      // Every block contains a 127, so that its scale is one. Rows 0 and 1 are the extremes.
      x[i] = r == 0 || i % 32 == 0 ? 127.0f : r == 1 ? -127.0f : static_cast<float>(rng.Below(255)) - 127.0f;
    }
    const Call call = {n_rows, n_in, n_out, x.data(), nullptr, false};
    const std::vector<float> expected = Multiply(*reference, *expected_w, call, kNan);
    ForEachTarget([&] { ASSERT_TRUE(Multiply(*cpu, *w, call, kNan) == expected) << "codes filled with " << fill; });
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ExactTest, testing::ValuesIn(CodedTypes()), TypeName);

TEST(RoundActivations, EqualsQuantizeRowQ8) {
  Rng rng(6);
  const int64_t n_blocks = 64, n = n_blocks * 32;
  std::vector<float> x(static_cast<size_t>(n + 1));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t b = i / 32;
    x[i + 1] = b == 0   ? 0.0f
               : b == 1 ? 1e-40f
               : b == 2 ? static_cast<float>(i % 32) + 0.5f  // ties
               : b == 3 ? std::ldexp(Normal(rng), 120)
                        : std::ldexp(Normal(rng), static_cast<int>(b) - 80);
  }
  x[1 + 2 * 32] = 127.0f;
  x[1 + 5 * 32 + 31] = std::numeric_limits<float>::infinity();
  x[1 + 6 * 32] = -std::numeric_limits<float>::infinity();
  x[1 + 7 * 32 + 16] = kNan;
  std::vector<int8_t> q(static_cast<size_t>(n));
  std::vector<float> d(static_cast<size_t>(n_blocks));
  QuantizeRowQ8(x.data() + 1, n, q.data(), d.data());
  ForEachTarget([&] {
    std::vector<ActBlock> act(static_cast<size_t>(n_blocks));
    std::memset(static_cast<void*>(act.data()), 0xff, act.size() * sizeof(ActBlock));
    RoundActivations(x.data() + 1, n_blocks, act.data());
    for (int64_t b = 0; b < n_blocks; ++b) {
      int sum = 0, sum_lo = 0;
      for (int i = 0; i < 32; ++i) {
        ASSERT_EQ(act[b].q[i], q[b * 32 + i]) << "block " << b << " element " << i;
        sum += act[b].q[i];
        if (i < 16) sum_lo += act[b].q[i];
      }
      ASSERT_EQ(std::memcmp(&act[b].d, &d[b], 4), 0) << "block " << b;
      ASSERT_EQ(act[b].neg_sum, -sum);
      ASSERT_EQ(act[b].neg_sum_lo, -sum_lo);
      ASSERT_TRUE(act[b].d_sum == d[b] * static_cast<float>(sum) || std::isnan(d[b]));
    }
  });
}

}  // namespace
}  // namespace weir::cpu
