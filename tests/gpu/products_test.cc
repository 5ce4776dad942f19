// SPDX-License-Identifier: Apache-2.0
// Products, embeddings and likelihoods on a device against the scalar reference. Activations of block formats are
// rounded to the same integers, so that only the order of F32 sums differs; halves and bfloats round their activations
// too when many rows meet the library's kernels, which the bounds say.
#include "gpu/devices.h"

namespace weir::testing {
namespace {

class ProductsTest : public DeviceTest {
 protected:
  // One product; the distance of what came from the reference's.
  double Check(DType type, int64_t n_rows, int64_t n_in, int64_t n_out, bool bias, bool accumulate, float scale = 1) {
    const cpu::Weights weights = cpu::Weights::Random(rng_, type, n_out, n_in);
    std::vector<int32_t> order(static_cast<size_t>(n_out));
    for (int64_t o = 0; o < n_out; ++o) order[o] = static_cast<int32_t>((o * 7 + 3) % n_out);
    const bool ordered = n_out % 7 != 0;
    const MatrixSource source = {"w", type, n_out, n_in, weights.data(), ordered ? order.data() : nullptr};
    const std::unique_ptr<Matrix> mine = Prepare(*backend_, source), reference = Prepare(*ref_, source);
    const int64_t x_stride = n_in + 3, y_stride = n_out + 5;
    std::vector<float> x = cpu::Normals(rng_, n_rows * x_stride), b = cpu::Normals(rng_, n_out);
    for (float& value : x) value *= scale;
    std::vector<float> y(static_cast<size_t>(n_rows * y_stride), NAN);
    for (int64_t r = 0; r < n_rows; ++r) {
      for (int64_t o = 0; o < n_out && accumulate; ++o) y[r * y_stride + o] = cpu::Normal(rng_);
    }
    float* device_y = Put(y);
    const MatMulOut out = {mine.get(), device_y, y_stride, bias ? Put(b) : nullptr, accumulate};
    backend_->MatMul({Put(x), x_stride, n_rows, n_in, {&out, 1}, Scratch(backend_->MatMulScratchBytes(n_rows, n_in))});
    const MatMulOut expected = {reference.get(), y.data(), y_stride, bias ? b.data() : nullptr, accumulate};
    ref_->MatMul({x.data(), x_stride, n_rows, n_in, {&expected, 1}, nullptr});
    const std::vector<float> got = Get(device_y, n_rows * y_stride);
    std::vector<float> a, e;
    for (int64_t r = 0; r < n_rows; ++r) {
      for (int64_t o = 0; o < y_stride; ++o) {
        if (o < n_out) {
          a.push_back(got[r * y_stride + o]);
          e.push_back(y[r * y_stride + o]);
        } else {
          EXPECT_TRUE(std::isnan(got[r * y_stride + o])) << "row " << r << " was written beyond its end";
        }
      }
    }
    return Distance(a, e);
  }
  static double Bound(DType type, int64_t n_rows) {
    const bool narrow = n_rows > 8;
    if (narrow && type == DType::kF16) return 1e-3;
    if (narrow && type == DType::kBF16) return 8e-3;
    return 1e-5;
  }

  Rng rng_{3};
};

TEST_P(ProductsTest, EveryWeightTypeAnyNumberOfRows) {
  for (DType type : cpu::WeightTypes()) {
    for (const int64_t n_rows : {1, 3, 8, 9, 70}) {
      SCOPED_TRACE(std::string(InfoOf(type).name) + ", rows " + std::to_string(n_rows));
      const int64_t n_in = IsBlocked(type) ? 768 : 301;
      EXPECT_LT(Check(type, n_rows, n_in, 67, n_rows % 2 == 0, n_rows % 3 == 0), Bound(type, n_rows));
    }
  }
}

TEST_P(ProductsTest, OddShapes) {
  // One block, tiles that are not full, blocks that are not a multiple of what a warp or a tile takes.
  for (const auto& [n_in, n_out] : {std::pair<int64_t, int64_t>{32, 1}, {96, 64}, {2080, 65}, {64, 200}}) {
    for (const int64_t n_rows : {1, 5, 64, 65}) {
      EXPECT_LT(Check(DType::kQ4_0, n_rows, n_in, n_out, true, true), 1e-5) << n_in << " " << n_out << " " << n_rows;
    }
  }
  for (const int64_t n_rows : {1, 12}) {
    EXPECT_LT(Check(DType::kF16, n_rows, 1, 3, false, false), Bound(DType::kF16, n_rows));
    EXPECT_LT(Check(DType::kF32, n_rows, 130, 3, false, true), 1e-5);
  }
}

// q, k and v; gate and up: what is one launch has the bits of a product alone, whatever lies beside it.
TEST_P(ProductsTest, SeveralMatricesOfOneCall) {
  using Types = std::vector<DType>;
  const Types all_alike(5, DType::kQ4_0);
  for (const Types& types : {all_alike, Types(3, DType::kF16), Types(2, DType::kF32), Types(3, DType::kMXFP4),
                             Types(3, DType::kQ6_K), Types{DType::kQ4_K, DType::kQ4_K, DType::kQ6_K}}) {
    for (const int64_t n_rows : {1, 2, 8, 9}) {
      for (const bool accumulate : {false, true}) {
        constexpr int64_t kIn = 512, kOuts[] = {67, 1, 130, 64, 5};
        const std::vector<float> x = cpu::Normals(rng_, n_rows * kIn);
        const float* on_device = Put(x);
        std::vector<std::unique_ptr<Matrix>> w;
        std::vector<MatMulOut> outs;
        std::vector<std::vector<float>> alone;
        for (size_t i = 0; i < types.size(); ++i) {
          const int64_t n_out = kOuts[i];
          const cpu::Weights weights = cpu::Weights::Random(rng_, types[i], n_out, kIn);
          w.push_back(Prepare(*backend_, {"w", types[i], n_out, kIn, weights.data()}));
          const float* bias = i % 2 == 0 ? Put(cpu::Normals(rng_, n_out)) : nullptr;
          const std::vector<float> before(static_cast<size_t>(n_rows * n_out), 1.0f);
          MatMulOut out = {w.back().get(), Put(before), n_out, bias, accumulate && i > 0};
          backend_->MatMul(
              {on_device, kIn, n_rows, kIn, {&out, 1}, Scratch(backend_->MatMulScratchBytes(n_rows, kIn))});
          alone.push_back(Get(out.y, n_rows * n_out));
          out.y = Put(before);
          outs.push_back(out);
        }
        backend_->MatMul({on_device, kIn, n_rows, kIn, outs, Scratch(backend_->MatMulScratchBytes(n_rows, kIn))});
        for (size_t i = 0; i < outs.size(); ++i) {
          EXPECT_EQ(Get(outs[i].y, n_rows * kOuts[i]), alone[i]) << InfoOf(types[i]).name << " " << n_rows << " " << i;
        }
      }
    }
  }
}

// Halves end at 65504: larger activations must not become infinite on the way.
TEST_P(ProductsTest, LargeActivationsOfHalfWeights) {
  EXPECT_LT(Check(DType::kF16, 16, 256, 64, false, false, 1e6f), Bound(DType::kF16, 16));
}

TEST_P(ProductsTest, AnActivationThatIsNoNumberIsSeen) {
  const cpu::Weights weights = cpu::Weights::Random(rng_, DType::kQ4_K, 40, 256);
  const auto w = Prepare(*backend_, {"w", DType::kQ4_K, 40, 256, weights.data()});
  for (const int64_t n_rows : {2, 20}) {
    std::vector<float> x = cpu::Normals(rng_, n_rows * 256);
    x[256 + 77] = NAN;
    float* y = Poisoned(n_rows * 40);
    const MatMulOut out = {w.get(), y, 40};
    backend_->MatMul({Put(x), 256, n_rows, 256, {&out, 1}, Scratch(backend_->MatMulScratchBytes(n_rows, 256))});
    const std::vector<float> got = Get(y, n_rows * 40);
    for (int64_t i = 0; i < n_rows * 40; ++i) EXPECT_EQ(std::isnan(got[i]), i / 40 == 1) << i;
  }
}

TEST_P(ProductsTest, EmbeddingsAreTheDecodedRows) {
  for (DType type : cpu::WeightTypes()) {
    const int64_t n_in = 512, n_out = 20;
    const cpu::Weights weights = cpu::Weights::Random(rng_, type, n_out, n_in);
    const MatrixSource source = {"w", type, n_out, n_in, weights.data()};
    const auto mine = Prepare(*backend_, source), reference = Prepare(*ref_, source);
    const std::vector<int32_t> ids = {19, 0, 7, 7, 3};
    float* out = Poisoned(5 * n_in);
    backend_->EmbedRows(*mine, ids.data(), 5, out);
    std::vector<float> expected(5 * n_in);
    ref_->EmbedRows(*reference, ids.data(), 5, expected.data());
    EXPECT_EQ(Get(out, 5 * n_in), expected) << InfoOf(type).name;
  }
}

// More than a megabyte is packed by several threads.
TEST_P(ProductsTest, LargeWeights) {
  const int64_t n_in = 512, n_out = 4097;
  const cpu::Weights weights = cpu::Weights::Random(rng_, DType::kQ5_K, n_out, n_in);
  std::vector<int32_t> order(static_cast<size_t>(n_out));
  for (int64_t o = 0; o < n_out; ++o) order[o] = static_cast<int32_t>((o * 5 + 1) % n_out);
  const MatrixSource source = {"w", DType::kQ5_K, n_out, n_in, weights.data(), order.data()};
  const auto mine = Prepare(*backend_, source), reference = Prepare(*ref_, source);
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < n_out; id += 63) ids.push_back(id);
  ids.push_back(n_out - 1);
  const int64_t n = std::ssize(ids);
  float* out = Poisoned(n * n_in);
  backend_->EmbedRows(*mine, ids.data(), n, out);
  std::vector<float> expected(static_cast<size_t>(n * n_in));
  ref_->EmbedRows(*reference, ids.data(), n, expected.data());
  EXPECT_EQ(Get(out, n * n_in), expected);
  // One weight that is no number, in the last row.
  std::vector<uint8_t> bad(weights.data(), weights.data() + n_out * RowBytes(DType::kQ5_K, n_in));
  const uint16_t nan = 0x7e00;
  std::memcpy(bad.data() + (n_out - 1) * RowBytes(DType::kQ5_K, n_in), &nan, 2);
  EXPECT_EQ(backend_->PrepareMatrix({"w", DType::kQ5_K, n_out, n_in, bad.data()}, ledger_).status().code(),
            StatusCode::kCorrupt);
}

TEST_P(ProductsTest, LikelihoodsOfAVocabularyInPieces) {
  const int64_t n_in = 64, n_vocab = 9000, n_rows = 11;
  const cpu::Weights weights = cpu::Weights::Random(rng_, DType::kQ8_0, n_vocab, n_in);
  const MatrixSource source = {"w", DType::kQ8_0, n_vocab, n_in, weights.data()};
  const auto mine = Prepare(*backend_, source), reference = Prepare(*ref_, source);
  const std::vector<float> x = cpu::Normals(rng_, n_rows * n_in), bias = cpu::Normals(rng_, n_vocab);
  std::vector<int32_t> targets = {0, 4095, 4096, 8999, -1, 17, 5000, 8191, 8192, 1, 2};
  for (const float softcap : {0.0f, 5.0f}) {
    std::vector<float> got(n_rows, NAN), expected(n_rows);
    NllArgs args = {Put(x),    n_rows, n_in, mine.get(), Put(bias), softcap, targets.data(), Normaliser::kExact,
                    got.data()};
    args.scratch = Scratch(backend_->NllScratchBytes(n_rows, n_in));
    backend_->HeadNll(args);
    ref_->HeadNll({x.data(), n_rows, n_in, reference.get(), bias.data(), softcap, targets.data(), Normaliser::kExact,
                   expected.data()});
    for (int64_t r = 0; r < n_rows; ++r) EXPECT_NEAR(got[r], expected[r], 1e-4 * (1 + std::fabs(expected[r]))) << r;
  }
}

TEST_P(ProductsTest, RefusesWhatTheReferenceRefuses) {
  const std::vector<uint8_t> nan(256 / 32 * 34, 0xff);
  EXPECT_EQ(backend_->PrepareMatrix({"w", DType::kQ8_0, 1, 256, nan.data()}, ledger_).status().code(),
            StatusCode::kCorrupt);
  EXPECT_EQ(backend_->PrepareMatrix({"w", DType::kQ8_0, 1, 250, nan.data()}, ledger_).status().code(),
            StatusCode::kCorrupt);
  Ledger small(kPageBytes);
  const cpu::Weights weights = cpu::Weights::Random(rng_, DType::kF32, 64, 64);
  EXPECT_EQ(backend_->PrepareMatrix({"w", DType::kF32, 64, 64, weights.data()}, small).status().code(),
            StatusCode::kOverBudget);
}

WEIR_ON_DEVICES(ProductsTest);

}  // namespace
}  // namespace weir::testing
