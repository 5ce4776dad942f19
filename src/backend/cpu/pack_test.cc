// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/pack.h"

#include <cstring>
#include <filesystem>
#include <limits>

#include "backend/cpu/testing.h"
#include "backend/packed_file.h"
#include "base/crc32c.h"
#include "gtest/gtest.h"
#include "ops/matmul.h"

namespace weir::cpu {
namespace {

class PackTest : public testing::TestWithParam<DType> {};

// Arbitrary bytes, not only those an encoder writes: packing must be lossless for every possible row.
TEST_P(PackTest, RowsDecodeToTheSameBits) {
  const DType type = GetParam();
  Rng rng(1);
  ThreadPool pool(2);
  Ledger ledger;
  const int64_t n_in = 512, n_out = 35, block_bytes = InfoOf(type).block_bytes;
  std::vector<uint8_t> bytes(static_cast<size_t>(n_out * RowBytes(type, n_in) + 1));
  for (uint8_t* at = bytes.data() + 1; at < bytes.data() + bytes.size(); at += block_bytes) {
    do {
      for (int64_t i = 0; i < block_bytes; ++i) at[i] = static_cast<uint8_t>(rng.Below(256));
    } while (!AllFinite(type, at, InfoOf(type).block_elements));
  }
  std::vector<int32_t> order(static_cast<size_t>(n_out));
  for (int64_t o = 0; o < n_out; ++o) order[o] = static_cast<int32_t>((o * 11 + 3) % n_out);
  for (const int32_t* row_order : {static_cast<const int32_t*>(nullptr), static_cast<const int32_t*>(order.data())}) {
    Result<std::unique_ptr<Matrix>> matrix =
        PackedMatrix::Make({"w", type, n_out, n_in, bytes.data() + 1, row_order}, ledger, pool);
    ASSERT_TRUE(matrix.ok()) << matrix.status().message();
    for (int64_t o = 0; o < n_out; ++o) {
      std::vector<float> expected(static_cast<size_t>(n_in), -1), got(static_cast<size_t>(n_in), -2);
      const int64_t row = row_order == nullptr ? o : row_order[o];
      DecodeRow(type, bytes.data() + 1 + row * RowBytes(type, n_in), n_in, expected.data());
      static_cast<const PackedMatrix&>(**matrix).DecodeRow(o, got.data());
      ASSERT_EQ(std::memcmp(got.data(), expected.data(), expected.size() * sizeof(float)), 0) << "row " << o;
    }
  }
}

TEST_P(PackTest, AsLargeAsTheFileAndInTheLedger) {
  const DType type = GetParam();
  Rng rng(2);
  ThreadPool pool(1);
  Ledger ledger;
  const int64_t n_in = 512, n_out = 64;
  const Weights weights = Weights::Random(rng, type, n_out, n_in);
  {
    Result<std::unique_ptr<Matrix>> matrix =
        PackedMatrix::Make({"w", type, n_out, n_in, weights.data(), nullptr}, ledger, pool);
    ASSERT_TRUE(matrix.ok()) << matrix.status().message();
    double file_bytes = static_cast<double>(n_out * RowBytes(type, n_in));
    if (type == DType::kQ3_K) file_bytes += static_cast<double>(n_out * n_in) / 8;    // a code of three bits takes four
    if (type == DType::kNVFP4) file_bytes += static_cast<double>(n_out * n_in) / 16;  // a scale of a byte takes two
    EXPECT_LE(static_cast<double>((*matrix)->bytes()), 1.03 * file_bytes);
    EXPECT_GE(static_cast<double>((*matrix)->bytes()), 0.99 * file_bytes);
    EXPECT_EQ(ledger.used_bytes(MemTag::kWeights), PageRound((*matrix)->bytes()));
  }
  EXPECT_EQ(ledger.used_bytes(), 0);
  Ledger small(PageRound(n_out * RowBytes(type, n_in)) / 2);
  EXPECT_EQ(PackedMatrix::Make({"w", type, n_out, n_in, weights.data(), nullptr}, small, pool).status().code(),
            StatusCode::kOverBudget);
  EXPECT_EQ(small.used_bytes(), 0);
}

TEST_P(PackTest, RefusesWeightsThatAreNotFinite) {
  const DType type = GetParam();
  Rng rng(3);
  ThreadPool pool(2);
  Ledger ledger;
  const int64_t n_in = 256, n_out = 40;
  Weights weights = Weights::Random(rng, type, n_out, n_in);
  std::vector<float> row(static_cast<size_t>(n_in), 0.0f);
  row[200] = std::numeric_limits<float>::infinity();
  uint8_t* const last = weights.data() + 39 * RowBytes(type, n_in);
  if (FormatOf(type).encode != nullptr) {
    EncodeRow(type, row.data(), n_in, last);
  } else {
    std::memset(last, 0xff, static_cast<size_t>(RowBytes(type, n_in)));  // scales that are no numbers
  }
  const Status status =
      PackedMatrix::Make({"blk.7.ffn", type, n_out, n_in, weights.data(), nullptr}, ledger, pool).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_NE(status.message().find("blk.7.ffn"), std::string::npos);
  EXPECT_EQ(ledger.used_bytes(), 0);
}

// What an earlier start packed is what would be packed now, and only that is taken from a file.
TEST_P(PackTest, ComesBackFromAFile) {
  const DType type = GetParam();
  Rng rng(4);
  ThreadPool pool(2);
  Ledger ledger;
  const int64_t n_in = 512, n_out = 40;
  Weights weights = Weights::Random(rng, type, n_out, n_in);
  const MatrixSource source = {"w", type, n_out, n_in, weights.data(), nullptr};
  const std::string folder = testing::TempDir() + "packed-" + InfoOf(type).name;
  std::filesystem::remove_all(folder);
  const auto make = [&](const MatrixSource& of, PackedFile* file) {
    return PackedMatrix::Make(of, ledger, pool, nullptr, file);
  };
  const auto bytes = [](const Matrix& m) {
    const auto& packed = static_cast<const PackedMatrix&>(m);
    return std::vector<uint8_t>(packed.panel(0), packed.panel(0) + packed.n_panels() * packed.panel_bytes());
  };
  const auto alone = make(source, nullptr);
  ASSERT_TRUE(alone.ok());
  for (const bool again : {false, true}) {
    const auto file = PackedFile::Open(folder, "model", "key");
    EXPECT_EQ(file->reading(), again);
    std::vector<std::unique_ptr<Matrix>> kept;
    for (int i = 0; i < 2; ++i) {
      auto matrix = make(source, file.get());
      ASSERT_TRUE(matrix.ok()) << matrix.status().message();
      EXPECT_EQ(bytes(**matrix), bytes(**alone));
      kept.push_back(*std::move(matrix));
      EXPECT_EQ(ledger.used_bytes(MemTag::kWeights), (i + 2) * PageRound((*alone)->bytes()));
    }
    EXPECT_EQ(file->matrices().size(), again ? 0u : 2u);
    file->Finish(true);
    while (file->WriteSome()) {
    }
    EXPECT_EQ(file->note(), "");
  }
  weights.data()[0] ^= 1;
  const auto file = PackedFile::Open(folder, "model", "key");
  const auto other = make(source, file.get());
  ASSERT_TRUE(other.ok());
  EXPECT_NE(file->note(), "");
  EXPECT_EQ(bytes(**other), bytes(**make(source, nullptr)));
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Types, PackTest, testing::ValuesIn(WeightTypes()),
                         [](const testing::TestParamInfo<DType>& info) {
                           return std::string(InfoOf(info.param).name);
                         });

// Files of packed weights outlive the program that wrote them: when this fails because a layout changed, kVersion of
// backend/packed_file.cc rises with the number here.
TEST(Pack, LayoutsOfPackedFilesStay) {
  ThreadPool pool(1);
  Ledger ledger;
  uint32_t sum = 0;
  for (const DType type : WeightTypes()) {
    const int64_t n_in = 512, n_out = 20;
    std::vector<uint8_t> rows(static_cast<size_t>(n_out * RowBytes(type, n_in)));
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint8_t>(i * 37 % 41);  // finite in every format
    const auto matrix = PackedMatrix::Make({"w", type, n_out, n_in, rows.data(), nullptr}, ledger, pool);
    ASSERT_TRUE(matrix.ok()) << InfoOf(type).name << ": " << matrix.status().message();
    const auto& packed = static_cast<const PackedMatrix&>(**matrix);
    sum = Crc32c({packed.panel(0), static_cast<size_t>(packed.n_panels() * packed.panel_bytes())}, sum);
  }
  EXPECT_EQ(sum, 538418685u);
}

TEST(Pack, RefusesBadShapes) {
  ThreadPool pool(1);
  Ledger ledger;
  const uint8_t data[4096] = {};
  const auto code = [&](const MatrixSource& source) {
    return PackedMatrix::Make(source, ledger, pool).status().code();
  };
  EXPECT_EQ(code({"w", DType::kQ4_0, 1, 33, data, nullptr}), StatusCode::kCorrupt);
  EXPECT_EQ(code({"w", DType::kQ4_K, 1, 128, data, nullptr}), StatusCode::kCorrupt);
  EXPECT_EQ(code({"w", DType::kF32, 0, 32, data, nullptr}), StatusCode::kCorrupt);
  EXPECT_EQ(code({"w", DType::kF32, int64_t{1} << 40, int64_t{1} << 40, data, nullptr}), StatusCode::kCorrupt);
  EXPECT_EQ(code({"w", DType::kI32, 1, 32, data, nullptr}), StatusCode::kUnsupported);
  EXPECT_EQ(code({"w", DType::kF32, 1, 32, nullptr, nullptr}), StatusCode::kInvalidArgument);
  const int32_t outside[2] = {0, 2};
  EXPECT_EQ(code({"w", DType::kF32, 2, 32, data, outside}), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir::cpu
