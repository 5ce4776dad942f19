// SPDX-License-Identifier: Apache-2.0
// The reference itself, against independently known answers.
#include "ops/vector_scores.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "ops/kv_slots.h"
#include "quant/format.h"
#include "support/build_paths.h"

namespace weir {
namespace {

std::vector<float> Scores(VectorScore what, const std::vector<float>& x, int64_t head_dim) {
  VectorScoresArgs args;
  args.what = what;
  args.slots = reinterpret_cast<const uint8_t*>(x.data());
  args.type = DType::kF32;
  args.head_dim = head_dim;
  args.n_slots = std::ssize(x) / head_dim;
  std::vector<float> out(static_cast<size_t>(args.n_slots), -7.0f);
  args.out = out.data();
  ref::VectorScores(args);
  return out;
}

TEST(VectorScores, ValueNormIsTheLength) {
  EXPECT_EQ(Scores(VectorScore::kValueNorm, {3, 4, 0, 0, 1, 0, -6, 8}, 2), (std::vector<float>{5, 0, 1, 10}));
}

TEST(VectorScores, KeyDiffIsTheCosineWithTheMeanDirection) {
  // Units: three times (1, 0), once (-1, 0), once (0, 1): the mean points along (2, 1).
  const std::vector<float> scores = Scores(VectorScore::kKeyDiff, {1, 0, 2, 0, 5, 0, -1, 0, 0, 3}, 2);
  const float along = 2 / std::sqrt(5.0f), across = 1 / std::sqrt(5.0f);
  const std::vector<float> expected = {-along, -along, -along, along, -across};
  for (size_t s = 0; s < expected.size(); ++s) EXPECT_NEAR(scores[s], expected[s], 1e-6) << s;
}

TEST(VectorScores, ZeroVectorsHaveCosineZero) {
  EXPECT_EQ(Scores(VectorScore::kKeyDiff, {0, 0, 0, 7}, 2), (std::vector<float>{0, -1}));
  EXPECT_EQ(Scores(VectorScore::kKeyDiff, {0, 0, 0, 0}, 2), (std::vector<float>{0, 0}));
  EXPECT_EQ(Scores(VectorScore::kKeyDiff, {1, 0, -1, 0}, 2), (std::vector<float>{0, 0}));  // a mean of length zero
}

TEST(VectorScores, LengthsOfKeysDoNotMatter) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(20 * 16), longer;
  for (float& v : x) v = normal(rng);
  longer = x;
  for (size_t i = 0; i < x.size(); ++i) longer[i] *= static_cast<float>(1 + i / 16);
  const std::vector<float> a = Scores(VectorScore::kKeyDiff, x, 16), b = Scores(VectorScore::kKeyDiff, longer, 16);
  for (size_t s = 0; s < a.size(); ++s) EXPECT_NEAR(a[s], b[s], 1e-6);
}

TEST(VectorScores, StoredTypesAreDecoded) {
  std::mt19937 rng(4);
  std::normal_distribution<float> normal;
  for (DType type : {DType::kF16, DType::kQ8_0, DType::kQ4_0}) {
    std::vector<float> x(12 * 64), decoded(12 * 64);
    for (float& v : x) v = normal(rng);
    std::vector<uint8_t> slots(static_cast<size_t>(12 * SlotBytes(type, 64)));
    for (int64_t s = 0; s < 12; ++s) {
      EncodeRow(type, &x[s * 64], 64, &slots[s * SlotBytes(type, 64)]);
      ref::LoadSlot(type, slots.data(), s, 64, &decoded[s * 64]);
    }
    for (VectorScore what : {VectorScore::kKeyDiff, VectorScore::kValueNorm}) {
      VectorScoresArgs args{what, slots.data(), type, 12, 64, nullptr};
      std::vector<float> out(12);
      args.out = out.data();
      ref::VectorScores(args);
      EXPECT_EQ(out, Scores(what, decoded, 64));
    }
  }
}

// The raw cases of the policies' goldens: scores there are rounded to 2^-12.
TEST(VectorScores, AgreesWithTheIndependentReference) {
  int64_t n_checked = 0;
  for (const auto& [name, what] :
       {std::pair{"keydiff", VectorScore::kKeyDiff}, {"value_norm", VectorScore::kValueNorm}}) {
    std::ifstream file(SourceDir() + "/tests/golden/policy/" + name + ".jsonl");
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json c = nlohmann::json::parse(line);
      for (const nlohmann::json& step : c["rounds"]) {
        const char* key = what == VectorScore::kKeyDiff ? "keys" : "values";
        if (!step.contains(key)) continue;
        for (size_t head = 0; head < step[key].size(); ++head) {
          std::vector<float> x;
          for (const nlohmann::json& slot : step[key][head]) x.insert(x.end(), slot.begin(), slot.end());
          const int64_t head_dim = std::ssize(x) / std::ssize(step[key][head]);
          const std::vector<float> got = Scores(what, x, head_dim);
          for (size_t s = 0; s < got.size(); ++s) {
            EXPECT_NEAR(got[s], step["scores"][head][s].get<float>(), 1.01f / 8192) << c["name"];
            ++n_checked;
          }
        }
      }
    }
  }
  EXPECT_GT(n_checked, 500);
}

}  // namespace
}  // namespace weir
