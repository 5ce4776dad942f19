// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/nll.h"

#include <cmath>
#include <limits>

#include "backend/backend.h"
#include "backend/cpu/pack.h"
#include "backend/cpu/testing.h"
#include "gtest/gtest.h"

namespace weir::cpu {
namespace {

const float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> Likelihood(Backend& backend, NllArgs args) {
  std::vector<uint8_t> scratch = Scratch(backend.NllScratchBytes(args.n_rows, args.n_in));
  std::vector<float> nll(static_cast<size_t>(args.n_rows), kNan);
  args.nll = nll.data();
  args.scratch = Aligned(scratch);
  backend.HeadNll(args);
  return nll;
}

class NllTest : public testing::TestWithParam<DType> {};

TEST_P(NllTest, EqualsReference) {
  const DType type = GetParam();
  Rng rng(1);
  Ledger ledger;
  const std::unique_ptr<Backend> reference = MakeRefBackend();
  std::unique_ptr<Backend> cpu[3];
  for (int t = 0; t < 3; ++t) cpu[t] = MakeCpuBackend(t + 1);
  const int64_t n_in = 256;
  // Less than a panel, a partial panel, more than one tile per chunk (32 chunks of 8 panels of 16).
  for (const int64_t n_vocab : {5, 300, 4200}) {
    const Weights weights = Weights::Random(rng, type, n_vocab, n_in);
    const MatrixSource source = {"head", type, n_vocab, n_in, weights.data(), nullptr};
    Result<std::unique_ptr<Matrix>> expected_head = reference->PrepareMatrix(source, ledger);
    Result<std::unique_ptr<Matrix>> head = cpu[0]->PrepareMatrix(source, ledger);
    ASSERT_TRUE(expected_head.ok() && head.ok());
    const std::vector<float> bias = Normals(rng, n_vocab);
    for (const int64_t n_rows : {1, 5, 50}) {
      std::vector<float> x = Normals(rng, n_rows * n_in);
      for (float& v : x) v *= 0.3f;
      std::vector<int32_t> target(static_cast<size_t>(n_rows));
      for (int32_t& t : target) t = static_cast<int32_t>(rng.Below(static_cast<uint64_t>(n_vocab) + 1)) - 1;
      if (n_rows > 1) target[1] = -1;
      target[0] = static_cast<int32_t>(n_vocab - 1);
      for (const float softcap : {0.0f, 3.0f}) {
        NllArgs args;
        args.x = x.data();
        args.n_rows = n_rows;
        args.n_in = n_in;
        args.head = expected_head->get();
        args.bias = n_rows == 5 ? nullptr : bias.data();
        args.softcap = softcap;
        args.target = target.data();
        const std::vector<float> expected = Likelihood(*reference, args);
        args.head = head->get();
        ForEachTarget([&] {
          const std::vector<float> got = Likelihood(*cpu[0], args);
          for (int64_t r = 0; r < n_rows; ++r) {
            ASSERT_NEAR(got[r], expected[r], 2e-5f * (1 + std::fabs(expected[r])))
                << "row " << r << " of " << n_rows << ", vocabulary " << n_vocab << ", cap " << softcap;
          }
          for (int t = 1; t < 3; ++t) ASSERT_EQ(Likelihood(*cpu[t], args), got) << t + 1 << " threads";
        });
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, NllTest, testing::Values(DType::kF32, DType::kQ4_1, DType::kQ6_K),
                         [](const testing::TestParamInfo<DType>& info) {
                           return std::string(InfoOf(info.param).name);
                         });

// Targets among the ids that are all counted, in a sampled tile, between sampled tiles and behind the last one.
TEST(CpuHeadNll, SampledNormaliserEqualsReference) {
  Rng rng(2);
  Ledger ledger;
  const std::unique_ptr<Backend> reference = MakeRefBackend();
  const std::unique_ptr<Backend> cpu = MakeCpuBackend(1), cpu3 = MakeCpuBackend(3);
  const int64_t n_in = 64, n_vocab = 20011;
  const NllTiles tiles(n_vocab, Normaliser::kSampled);
  const int64_t tile = tiles.first_id(tiles.n_tiles() - 1);
  ASSERT_TRUE(tiles.sampled(tile));
  const std::vector<int32_t> target = {
      3,  static_cast<int32_t>(tile),     static_cast<int32_t>(tile - 5), static_cast<int32_t>(n_vocab - 1),
      -1, static_cast<int32_t>(tile + 17)};
  const int64_t n_rows = std::ssize(target);
  for (const DType type : {DType::kF32, DType::kQ4_1}) {
    const Weights weights = Weights::Random(rng, type, n_vocab, n_in);
    const MatrixSource source = {"head", type, n_vocab, n_in, weights.data(), nullptr};
    Result<std::unique_ptr<Matrix>> expected_head = reference->PrepareMatrix(source, ledger);
    Result<std::unique_ptr<Matrix>> head = cpu->PrepareMatrix(source, ledger);
    ASSERT_TRUE(expected_head.ok() && head.ok());
    const std::vector<float> bias = Normals(rng, n_vocab), x = Normals(rng, n_rows * n_in);
    for (const float softcap : {0.0f, 3.0f}) {
      NllArgs args;
      args.x = x.data();
      args.n_rows = n_rows;
      args.n_in = n_in;
      args.head = expected_head->get();
      args.bias = bias.data();
      args.softcap = softcap;
      args.target = target.data();
      args.normaliser = Normaliser::kSampled;
      const std::vector<float> expected = Likelihood(*reference, args);
      args.head = head->get();
      ForEachTarget([&] {
        const std::vector<float> got = Likelihood(*cpu, args);
        for (int64_t r = 0; r < n_rows; ++r) {
          ASSERT_NEAR(got[r], expected[r], 2e-5f * (1 + std::fabs(expected[r]))) << "row " << r << ", cap " << softcap;
        }
        ASSERT_EQ(Likelihood(*cpu3, args), got);
      });
    }
  }
}

// Logits 1,000 apart, all equal, and not a number.
TEST(CpuHeadNll, Extremes) {
  Ledger ledger;
  const std::unique_ptr<Backend> cpu = MakeCpuBackend(2);
  const int64_t n_vocab = 1000;
  std::vector<float> column(static_cast<size_t>(n_vocab));
  for (int64_t v = 0; v < n_vocab; ++v) column[v] = v == 600 ? 1.0f : 0.0f;
  Result<std::unique_ptr<Matrix>> head = cpu->PrepareMatrix(
      {"head", DType::kF32, n_vocab, 1, reinterpret_cast<const uint8_t*>(column.data()), nullptr}, ledger);
  ASSERT_TRUE(head.ok());
  const float x[] = {1000, 1000, -1000, 0, kNan, std::numeric_limits<float>::infinity()};
  const int32_t target[] = {600, 3, 3, 3, 600, 600};
  NllArgs args;
  args.x = x;
  args.n_rows = 6;
  args.n_in = 1;
  args.head = head->get();
  args.target = target;
  ForEachTarget([&] {
    const std::vector<float> nll = Likelihood(*cpu, args);
    EXPECT_FLOAT_EQ(nll[0], 0);
    EXPECT_FLOAT_EQ(nll[1], 1000);
    EXPECT_FLOAT_EQ(nll[2], std::log(999.0f));
    EXPECT_FLOAT_EQ(nll[3], std::log(1000.0f));
    EXPECT_TRUE(std::isnan(nll[4]));
    EXPECT_TRUE(std::isnan(nll[5]));
  });
}

TEST(CpuLogSumExp, EqualsReference) {
  Rng rng(5);
  const std::unique_ptr<Backend> cpu = MakeCpuBackend(1);
  for (const int64_t n : {1, 2, 15, 16, 17, 1000, 4095, 4096, 4097, 49152, 151936}) {
    std::vector<float> logits = Normals(rng, n);
    for (const float scale : {0.0f, 1.0f, 5.0f, 1000.0f}) {
      std::vector<float> z = logits;
      for (float& v : z) v = v * scale - 30;
      const float expected = ref::LogSumExp(z.data(), n);
      ForEachTarget([&] {
        ASSERT_NEAR(cpu->LogSumExp(z.data(), n), expected, 2e-6f * (1 + std::fabs(expected))) << n << " " << scale;
      });
    }
  }
}

TEST(CpuLogSumExp, Extremes) {
  const std::unique_ptr<Backend> cpu = MakeCpuBackend(1);
  std::vector<float> z(40, -1e30f);
  z[37] = 90000;
  ForEachTarget([&] { EXPECT_EQ(cpu->LogSumExp(z.data(), 40), 90000); });
  z[5] = kNan;
  ForEachTarget([&] { EXPECT_TRUE(std::isnan(cpu->LogSumExp(z.data(), 40))); });
  z.assign(40, -std::numeric_limits<float>::infinity());
  z[3] = 2;
  ForEachTarget([&] { EXPECT_EQ(cpu->LogSumExp(z.data(), 40), 2); });
}

TEST(CpuHeadNll, ScratchDoesNotGrowWithTheVocabulary) {
  // 4,096 rows of 2,048: far below the 2 GB that rows times a vocabulary of 128 K would take.
  EXPECT_LT(NllScratchBytes(4096, 2048, 2), int64_t{16} << 20);
}

}  // namespace
}  // namespace weir::cpu
