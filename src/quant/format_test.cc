// SPDX-License-Identifier: Apache-2.0
#include "quant/format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "quant/block_formats.h"
#include "quant/half.h"
#include "quant/k_search.h"
#include "support/build_paths.h"

namespace weir {
namespace {

std::vector<DType> AllTypes() {
  std::vector<DType> types;
  for (int i = 0; i < kNumDTypes; ++i) types.push_back(static_cast<DType>(i));
  return types;
}

// Without those that are only read.
std::vector<DType> EncodedTypes() {
  std::vector<DType> types = AllTypes();
  std::erase_if(types, [](DType type) { return FormatOf(type).encode == nullptr; });
  return types;
}

std::vector<float> Gaussian(int64_t n, float scale, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> out(n);
  for (float& x : out) x = normal(rng);
  return out;
}

std::vector<uint8_t> Encoded(DType type, const std::vector<float>& in) {
  const int64_t block = InfoOf(type).block_elements;
  const int64_t blocks = (static_cast<int64_t>(in.size()) + block - 1) / block;
  std::vector<uint8_t> out(blocks * InfoOf(type).block_bytes);
  EncodeRow(type, in.data(), static_cast<int64_t>(in.size()), out.data());
  return out;
}

std::vector<float> Decoded(DType type, const std::vector<uint8_t>& row, int64_t n) {
  std::vector<float> out(n);
  DecodeRow(type, row.data(), n, out.data());
  return out;
}

// Root mean square error as a fraction of the root mean square value.
double RelativeError(const std::vector<float>& expected, const std::vector<float>& actual) {
  double error = 0, power = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += (static_cast<double>(actual[i]) - expected[i]) * (static_cast<double>(actual[i]) - expected[i]);
    power += static_cast<double>(expected[i]) * expected[i];
  }
  return std::sqrt(error / power);
}

uint32_t BitsOf(float value) { return std::bit_cast<uint32_t>(value); }

struct GoldenLine {
  std::string kind;  // "decode" or "encode"
  DType type = DType::kF32;
  std::vector<uint8_t> in;
  std::vector<uint8_t> out;
};

std::vector<uint8_t> FromHex(const std::string& hex) {
  std::vector<uint8_t> bytes(hex.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<uint8_t>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return bytes;
}

std::vector<GoldenLine> ReadGolden() {
  std::map<std::string, DType> by_name;
  for (DType type : AllTypes()) by_name[InfoOf(type).name] = type;
  std::ifstream file(SourceDir() + "/tests/golden/quant/blocks.txt");
  std::vector<GoldenLine> lines;
  std::string text;
  while (std::getline(file, text)) {
    std::istringstream fields(text);
    std::string kind, name, in, out;
    fields >> kind >> name >> in >> out;
    EXPECT_TRUE(by_name.count(name)) << name;
    lines.push_back({kind, by_name[name], FromHex(in), FromHex(out)});
  }
  return lines;
}

std::vector<float> AsFloats(const std::vector<uint8_t>& bytes) {
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
  return out;
}

TEST(FormatTest, TableAgreesWithElementTypes) {
  for (DType type : AllTypes()) {
    const QuantFormat& format = FormatOf(type);
    EXPECT_EQ(format.type, type) << InfoOf(type).name;
    EXPECT_EQ(&format.info, &InfoOf(type)) << InfoOf(type).name;
    EXPECT_LE(format.info.block_elements, kMaxBlockElements) << InfoOf(type).name;
  }
}

TEST(FormatTest, DecodesLikeTheReferenceBitForBit) {
  std::set<DType> seen;
  for (const GoldenLine& line : ReadGolden()) {
    if (line.kind != "decode") continue;
    seen.insert(line.type);
    const std::vector<float> expected = AsFloats(line.out);
    const std::vector<float> actual = Decoded(line.type, line.in, static_cast<int64_t>(expected.size()));
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(BitsOf(actual[i]), BitsOf(expected[i])) << InfoOf(line.type).name << " element " << i;
    }
  }
  for (DType type : AllTypes()) {
    if (type == DType::kF32 || type == DType::kI32) continue;
    EXPECT_TRUE(seen.count(type)) << "no golden block of " << InfoOf(type).name << ": tools/golden/quant.py";
  }
}

TEST(FormatTest, EncodesLikeTheReferenceWhereItIsDefined) {
  std::set<DType> seen;
  for (const GoldenLine& line : ReadGolden()) {
    if (line.kind != "encode") continue;
    seen.insert(line.type);
    EXPECT_EQ(Encoded(line.type, AsFloats(line.in)), line.out) << InfoOf(line.type).name;
  }
  EXPECT_GE(seen.size(), 7u);  // those of the package `gguf`: tools/golden/quant.py
}

TEST(FormatTest, RoundTripErrorIsWhatTheFormatSays) {
  for (DType type : EncodedTypes()) {
    if (type == DType::kI32) continue;
    for (const float scale : {0.02f, 3.0f}) {
      const std::vector<float> in = Gaussian(256 * 64, scale, 7);
      const double error = RelativeError(in, Decoded(type, Encoded(type, in), static_cast<int64_t>(in.size())));
      EXPECT_LE(error, FormatOf(type).round_trip_error) << InfoOf(type).name << " scale " << scale;
    }
  }
}

// Codes and scales, combined as in quant/codes.h, equal the decoded values bit for bit.
TEST(FormatTest, CodesAreTheValues) {
  for (DType type : AllTypes()) {
    const CodeLayout codes = CodesOf(type);
    ASSERT_EQ(codes.has_codes(), FormatOf(type).read_codes != nullptr) << InfoOf(type).name;
    if (!codes.has_codes()) continue;
    const std::vector<uint8_t> row = Encoded(type, Gaussian(512, 1.0f, 13));
    const std::vector<float> expected = Decoded(type, row, 512);
    for (int64_t b = 0; b < 512 / kCodeBlock; ++b) {
      const CodeBlock block = FormatOf(type).read_codes(row.data(), b);
      const float d = F16ToF32(block.d), m = F16ToF32(block.m);
      for (int i = 0; i < kCodeBlock; ++i) {
        float scale = d, addend = m;
        if (codes.scales == ScaleKind::kSuper) scale = d * block.sub[0], addend = -(m * block.sub[1]);
        if (codes.scales == ScaleKind::kSuper16) scale = d * static_cast<int8_t>(block.sub[i / 16]);
        if (codes.scales == ScaleKind::kSuper32) scale = d * static_cast<int8_t>(block.sub[0]);
        if (codes.scales == ScaleKind::kHalves) scale = i < 16 ? d : m;
        if (codes.scales == ScaleKind::kPower) scale = PowerScale(block.sub[0]);
        ASSERT_LT(block.code[i], 1 << codes.bits) << InfoOf(type).name;
        const int code = codes.CodeOf(block.code[i]);
        ASSERT_TRUE(code >= 0 && code < 1 << codes.code_bits()) << InfoOf(type).name;
        const float product = static_cast<float>(code - codes.offset()) * scale;
        const float value = codes.has_addend() ? product + addend : product;
        ASSERT_EQ(BitsOf(value), BitsOf(expected[b * kCodeBlock + i])) << InfoOf(type).name << " " << b << " " << i;
      }
    }
  }
}

TEST(FormatTest, SpecialRowsKeepTheirShape) {
  for (DType type : EncodedTypes()) {
    if (type == DType::kI32) continue;
    for (const float constant : {0.0f, 1.0f, -0.5f, 1e-30f}) {
      const std::vector<float> in(256, constant);
      for (float x : Decoded(type, Encoded(type, in), 256)) {
        ASSERT_NEAR(x, constant, 0.02 * std::fabs(constant) + 1e-7) << InfoOf(type).name;
      }
    }
    // One outlier among zeros: the zeros stay small (IQ4_NL has no level for them), the outlier keeps its value.
    std::vector<float> in(256, 0.0f);
    in[77] = -4.0f;
    const std::vector<float> out = Decoded(type, Encoded(type, in), 256);
    for (int i = 0; i < 256; ++i) ASSERT_NEAR(out[i], in[i], 0.04) << InfoOf(type).name << " element " << i;
  }
}

TEST(FormatTest, EncodingWhatWasDecodedLosesLittle) {
  for (DType type : EncodedTypes()) {
    if (type == DType::kI32) continue;
    const std::vector<float> once = Decoded(type, Encoded(type, Gaussian(1024, 1.0f, 3)), 1024);
    const std::vector<float> twice = Decoded(type, Encoded(type, once), 1024);
    EXPECT_LE(RelativeError(once, twice), 0.03) << InfoOf(type).name;
  }
}

TEST(FormatTest, RowsMayEndInsideABlock) {
  for (DType type : EncodedTypes()) {
    const std::vector<float> in = Gaussian(3 * kMaxBlockElements, 100.0f, 11);
    const std::vector<uint8_t> row = Encoded(type, in);
    const std::vector<float> whole = Decoded(type, row, static_cast<int64_t>(in.size()));
    for (const int64_t n : {0, 1, 31, 32, 33, 255, 256, 257, 700}) {
      std::vector<float> part(n + 1, 12345.0f);
      DecodeRow(type, row.data(), n, part.data());
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(BitsOf(part[i]), BitsOf(whole[i])) << InfoOf(type).name << " " << n;
      ASSERT_EQ(part[n], 12345.0f) << InfoOf(type).name << " wrote past element " << n;
    }
    const std::vector<float> head(in.begin(), in.begin() + 257);
    std::vector<float> padded = head;
    padded.resize(512);
    const std::vector<uint8_t> short_row = Encoded(type, head);
    const std::vector<uint8_t> long_row = Encoded(type, padded);
    EXPECT_TRUE(std::equal(short_row.begin(), short_row.end(), long_row.begin())) << InfoOf(type).name;
  }
}

TEST(FormatTest, AnyAddressWillDo) {
  for (DType type : EncodedTypes()) {
    const std::vector<float> in = Gaussian(512, 50.0f, 5);
    const std::vector<uint8_t> row = Encoded(type, in);
    const std::vector<float> expected = Decoded(type, row, 512);
    std::vector<uint8_t> shifted(row.size() + 3);
    std::copy(row.begin(), row.end(), shifted.begin() + 3);
    std::vector<float> out(512);
    DecodeRow(type, shifted.data() + 3, 512, out.data());
    EXPECT_EQ(out, expected) << InfoOf(type).name;
    std::vector<uint8_t> written(row.size() + 1);
    EncodeRow(type, in.data(), 512, written.data() + 1);
    EXPECT_TRUE(std::equal(row.begin(), row.end(), written.begin() + 1)) << InfoOf(type).name;
    EXPECT_TRUE(AllFinite(type, shifted.data() + 3, 512)) << InfoOf(type).name;
  }
}

// Of types that are only read: parts of rows and odd addresses.
TEST(FormatTest, WhatIsOnlyReadIsReadAnywhere) {
  int n_types = 0;
  for (const GoldenLine& line : ReadGolden()) {
    if (FormatOf(line.type).encode != nullptr) continue;
    n_types += 1;
    const std::vector<float> whole = AsFloats(line.out);
    std::vector<uint8_t> shifted(line.in.size() + 3);
    std::copy(line.in.begin(), line.in.end(), shifted.begin() + 3);
    for (const int64_t n : {0, 1, 31, 33, 255}) {
      std::vector<float> part(n + 1, 12345.0f);
      DecodeRow(line.type, shifted.data() + 3, n, part.data());
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(BitsOf(part[i]), BitsOf(whole[i])) << InfoOf(line.type).name;
      ASSERT_EQ(part[n], 12345.0f) << InfoOf(line.type).name << " wrote past element " << n;
    }
    EXPECT_TRUE(AllFinite(line.type, shifted.data() + 3, 256)) << InfoOf(line.type).name;
    std::fill(shifted.begin(), shifted.end(), 0xff);
    EXPECT_FALSE(AllFinite(line.type, shifted.data() + 3, 256)) << InfoOf(line.type).name;
  }
  EXPECT_GT(n_types, 0);
}

TEST(FormatTest, BadValuesAreNeverHidden) {
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity()};
  for (DType type : EncodedTypes()) {
    if (type == DType::kI32) continue;
    for (const float value : bad) {
      for (const int at : {0, 300, 767}) {
        std::vector<float> in = Gaussian(768, 1.0f, 9);
        ASSERT_TRUE(AllFinite(type, Encoded(type, in).data(), 768)) << InfoOf(type).name;
        in[at] = value;
        EXPECT_FALSE(AllFinite(type, Encoded(type, in).data(), 768)) << InfoOf(type).name << " " << value << " " << at;
      }
    }
    // Finite, but beyond a half scale (and F16 itself).
    if (type == DType::kF32 || type == DType::kBF16) continue;
    std::vector<float> large(256, 1.0f);
    large[100] = 3e38f;
    large[101] = -3e38f;
    EXPECT_FALSE(AllFinite(type, Encoded(type, large).data(), 256)) << InfoOf(type).name;
  }
}

// Every bit pattern of a half scale, in every block, is accepted or rejected by its value.
TEST(FormatTest, FiniteCheckAgreesWithDecoding) {
  for (DType type : AllTypes()) {
    const QuantFormat& format = FormatOf(type);
    std::mt19937 rng(17);
    for (int round = 0; round < 3000; ++round) {
      std::vector<uint8_t> block(format.info.block_bytes);
      for (uint8_t& byte : block) byte = static_cast<uint8_t>(rng());
      std::vector<float> out(format.info.block_elements);
      format.decode(block.data(), out.data());
      const bool decoded_finite = std::all_of(out.begin(), out.end(), [](float x) { return std::isfinite(x); });
      const bool judged = AllFinite(type, block.data(), format.info.block_elements);
      // The check may reject a block whose bad scale is used only by zero codes; it must never accept a bad value.
      ASSERT_TRUE(decoded_finite || !judged) << InfoOf(type).name;
      ASSERT_TRUE(format.info.block_elements > 1 || judged == decoded_finite) << InfoOf(type).name;
    }
  }
}

TEST(FormatTest, PackedScalesKeepAllPairs) {
  for (int group = 0; group < kMinGroups; ++group) {
    for (int scale = 0; scale < 64; ++scale) {
      for (int min = 0; min < 64; ++min) {
        uint8_t packed[kPackedScaleBytes] = {};
        for (int other = 0; other < kMinGroups; ++other) PackScale({other * 9, 63 - other * 9}, other, packed);
        PackScale({scale, min}, group, packed);
        for (int other = 0; other < kMinGroups; ++other) {
          const GroupScale got = UnpackScale(packed, other);
          ASSERT_EQ(got.scale, other == group ? scale : other * 9);
          ASSERT_EQ(got.min, other == group ? min : 63 - other * 9);
        }
      }
    }
  }
}

TEST(FormatTest, IntegersRoundAndSaturate) {
  const std::vector<float> in = {0.5f, 1.5f, -2.7f, 3e9f, -3e9f, 16777216.0f};
  const std::vector<float> out = Decoded(DType::kI32, Encoded(DType::kI32, in), 6);
  EXPECT_EQ(out, (std::vector<float>{0.0f, 2.0f, -3.0f, 2147483648.0f, -2147483648.0f, 16777216.0f}));
}

}  // namespace
}  // namespace weir
