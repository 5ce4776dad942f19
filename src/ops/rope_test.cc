// SPDX-License-Identifier: Apache-2.0
#include "ops/rope.h"
#include "support/build_paths.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace weir {
namespace {

RopeConfig ConfigFrom(const nlohmann::json& j) {
  RopeConfig config;
  config.n_rot = j.at("n_rot");
  config.freq_base = j.at("freq_base");
  const std::string scaling = j.value("scaling", "none");
  if (scaling == "linear") config.scaling = RopeConfig::Scaling::kLinear;
  if (scaling == "yarn") config.scaling = RopeConfig::Scaling::kYarn;
  if (scaling == "longrope") config.scaling = RopeConfig::Scaling::kLongRope;
  config.factor = j.value("factor", 1.0);
  config.original_context = j.value("original_context", 0.0);
  config.yarn_beta_fast = j.value("beta_fast", 32.0);
  config.yarn_beta_slow = j.value("beta_slow", 1.0);
  config.attn_factor = j.value("attn_factor", 1.0);
  config.freq_factors = j.value("freq_factors", std::vector<float>());
  config.freq_factors_long = j.value("freq_factors_long", std::vector<float>());
  return config;
}

// Every scaling kind against the transformers package (tools/golden/rope.py), which computes in F32.
TEST(Rope, InverseFrequenciesEqualTransformers) {
  std::ifstream file(SourceDir() + "/tests/golden/rope/inv_freq.json");
  ASSERT_TRUE(file.good());
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_GE(golden.at("cases").size(), 9u);
  for (const nlohmann::json& c : golden.at("cases")) {
    SCOPED_TRACE(c.at("name").get<std::string>());
    const Result<RopeTable> table = RopeTable::Make(ConfigFrom(c.at("config")), c.at("config").at("n_positions"));
    ASSERT_TRUE(table.ok()) << table.status().message();
    const std::vector<double> expected = c.at("inv_freq");
    ASSERT_EQ(table->inv_freq.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(table->inv_freq[i], expected[i], 1e-6 * expected[i]) << "pair " << i;
    }
    EXPECT_NEAR(table->magnitude, c.at("magnitude").get<double>(), 1e-6);
  }
}

TEST(Rope, TwoLevelTablesMakeEveryPosition) {
  RopeConfig config;
  config.n_rot = 48;
  config.freq_base = 500000;
  const Result<RopeTable> table = RopeTable::Make(config, 5000);
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table->n_positions, 5024);
  const int n_pairs = 24;
  std::vector<float> cos(n_pairs), sin(n_pairs);
  for (int64_t pos = 0; pos < table->n_positions; pos += 7) {
    RopeAngles(*table, &pos, 1, cos.data(), sin.data());
    const int64_t base = pos / kRopeTile * n_pairs, off = pos % kRopeTile * n_pairs;
    for (int i = 0; i < n_pairs; ++i) {
      const double bc = table->base_cos[base + i], bs = table->base_sin[base + i];
      const double oc = table->off_cos[off + i], os = table->off_sin[off + i];
      ASSERT_NEAR(bc * oc - bs * os, cos[i], 3e-7) << pos << " " << i;
      ASSERT_NEAR(bs * oc + bc * os, sin[i], 3e-7) << pos << " " << i;
    }
  }
}

TEST(Rope, AnglesStayExactFarOut) {
  RopeConfig config;
  config.n_rot = 2;
  const Result<RopeTable> table = RopeTable::Make(config, 32);
  ASSERT_TRUE(table.ok());
  const int64_t pos[2] = {10'000'000'000, -3};
  float cos[2], sin[2];
  RopeAngles(*table, pos, 2, cos, sin);
  EXPECT_FLOAT_EQ(cos[0], std::cos(1e10));
  EXPECT_FLOAT_EQ(sin[0], std::sin(1e10));
  EXPECT_FLOAT_EQ(sin[1], std::sin(-3.0));
}

TEST(Rope, RotateRowsIsAComplexProduct) {
  RopeConfig config;
  config.n_rot = 4;
  config.attn_factor = 2;
  const Result<RopeTable> table = RopeTable::Make(config, 32);
  ASSERT_TRUE(table.ok());
  const int64_t pos[2] = {1, 5};
  float cos[4], sin[4];
  RopeAngles(*table, pos, 2, cos, sin);
  float x[12] = {1, 2, 3, 4, 5, 6, -1, 0, 2, 1, 7, 8};
  const std::vector<float> old(x, x + 12);
  ref::RotateRows(*table, cos, sin, 2, 6, x);
  for (int row = 0; row < 2; ++row) {
    for (int pair = 0; pair < 2; ++pair) {
      const double angle = pos[row] * table->inv_freq[pair];
      const double re = old[row * 6 + pair], im = old[row * 6 + pair + 2];
      EXPECT_NEAR(x[row * 6 + pair], 2 * (re * std::cos(angle) - im * std::sin(angle)), 1e-5);
      EXPECT_NEAR(x[row * 6 + pair + 2], 2 * (re * std::sin(angle) + im * std::cos(angle)), 1e-5);
    }
    EXPECT_EQ(x[row * 6 + 4], old[row * 6 + 4]);
    EXPECT_EQ(x[row * 6 + 5], old[row * 6 + 5]);
  }
}

TEST(Rope, BytesAreWhatMakeHolds) {
  RopeConfig config;
  config.n_rot = 64;
  const Result<RopeTable> table = RopeTable::Make(config, 1000);
  ASSERT_TRUE(table.ok());
  const int64_t held = static_cast<int64_t>(
      table->inv_freq.size() * 8 + 4 * (table->off_cos.size() + table->off_sin.size() + table->turned_cos.size() +
                                        table->turned_sin.size() + table->base_cos.size() + table->base_sin.size()));
  EXPECT_EQ(RopeTable::Bytes(config, 1000), held);
}

TEST(Rope, NoRotationIsAnEmptyTable) {
  const Result<RopeTable> table = RopeTable::Make(RopeConfig(), 1000);
  ASSERT_TRUE(table.ok());
  EXPECT_TRUE(table->inv_freq.empty());
  EXPECT_TRUE(table->base_cos.empty());
  EXPECT_EQ(RopeTable::Bytes(RopeConfig(), 1000), 0);
}

TEST(Rope, RefusesNonsense) {
  RopeConfig good;
  good.n_rot = 8;
  ASSERT_TRUE(RopeTable::Make(good, 64).ok());
  EXPECT_EQ(RopeTable::Make(good, 2 * kRopeTile)->n_positions, 2 * kRopeTile);
  EXPECT_EQ(RopeTable::Make(good, 2 * kRopeTile + 1)->n_positions, 3 * kRopeTile);
  const auto refused = [&](auto change, int64_t n_positions = 64) {
    RopeConfig config = good;
    change(config);
    const Result<RopeTable> table = RopeTable::Make(config, n_positions);
    EXPECT_EQ(RopeTable::Bytes(config, n_positions), 0);
    return !table.ok() && table.status().code() == StatusCode::kInvalidArgument && !table.status().message().empty();
  };
  EXPECT_TRUE(refused([](RopeConfig& c) { c.n_rot = 7; }));
  EXPECT_TRUE(refused([](RopeConfig& c) { c.n_rot = -2; }));
  EXPECT_TRUE(refused([](RopeConfig& c) { c.n_rot = 1 << 30; }));
  EXPECT_TRUE(refused([](RopeConfig& c) { c.freq_base = 0; }));
  EXPECT_TRUE(refused([](RopeConfig& c) { c.freq_base = std::numeric_limits<double>::quiet_NaN(); }));
  EXPECT_TRUE(refused([](RopeConfig& c) { c.factor = -1; }));
  EXPECT_TRUE(refused([](RopeConfig& c) { c.attn_factor = 0; }));
  EXPECT_TRUE(refused([](RopeConfig& c) { c.freq_factors = {1, 2, 3}; }));
  EXPECT_TRUE(refused([](RopeConfig& c) { c.freq_factors = {1, 2, 0, 4}; }));
  EXPECT_TRUE(refused([](RopeConfig& c) { c.freq_factors_long = {1}; }));
  EXPECT_TRUE(refused([](RopeConfig& c) { c.scaling = RopeConfig::Scaling::kYarn; }));
  const auto yarn = [](RopeConfig& c) {
    c.scaling = RopeConfig::Scaling::kYarn;
    c.original_context = 64;
  };
  RopeConfig whole = good;
  yarn(whole);
  EXPECT_TRUE(RopeTable::Make(whole, 64).ok());
  EXPECT_TRUE(refused([&](RopeConfig& c) { yarn(c), c.yarn_beta_fast = 0; }));
  EXPECT_TRUE(refused([&](RopeConfig& c) { yarn(c), c.yarn_beta_slow = 0; }));
  EXPECT_TRUE(refused([&](RopeConfig& c) { yarn(c), c.yarn_ext_factor = std::numeric_limits<double>::infinity(); }));
  EXPECT_TRUE(refused([](RopeConfig&) {}, -1));
  EXPECT_TRUE(refused([](RopeConfig&) {}, std::numeric_limits<int64_t>::max()));
}

}  // namespace
}  // namespace weir
