// SPDX-License-Identifier: Apache-2.0
// The reference itself, against the attention reference and independently known answers.
#include "ops/column_scores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace weir {
namespace {

constexpr int64_t kDim = 64;

// Ragged F32 pots of two KV heads, four query heads. Values are the identity: value s is the s-th unit vector, so that
// the attention of a row is the row's weights.
struct Pots {
  std::vector<float> q, k[2], v;
  const uint8_t* k_ptrs[2];
  const uint8_t* v_ptrs[2];
  int32_t n_slots[2] = {50, 41};
  AttentionSegment segment;
  RopeTable rope;

  explicit Pots(int64_t n_rows) {
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    q.resize(n_rows * 4 * kDim);
    for (float& x : q) x = normal(rng);
    v.assign(kDim * kDim, 0.0f);
    for (int64_t s = 0; s < kDim; ++s) v[s * kDim + s] = 1;
    for (int h = 0; h < 2; ++h) {
      k[h].resize(n_slots[h] * kDim);
      for (float& x : k[h]) x = normal(rng);
      k_ptrs[h] = reinterpret_cast<const uint8_t*>(k[h].data());
      v_ptrs[h] = reinterpret_cast<const uint8_t*>(v.data());
    }
    segment = {0, n_rows, k_ptrs, v_ptrs, n_slots};
    RopeConfig config;
    config.n_rot = 48;
    config.attn_factor = 1.1;
    rope = RopeTable::Make(config, 50).value();
  }

  AttentionArgs Args() const {
    AttentionArgs args;
    args.n_heads = 4;
    args.n_kv_heads = 2;
    args.head_dim = kDim;
    args.scale = 1 / std::sqrt(static_cast<float>(kDim));
    args.q = q.data();
    args.q_stride = args.out_stride = 4 * kDim;
    args.k_type = args.v_type = DType::kF32;
    args.rope = &rope;
    args.segments = {&segment, 1};
    return args;
  }
};

struct Scores {
  std::vector<float> head0, head1;
  float* out[2];
  explicit Scores(const Pots& pots, float fill = NAN) : head0(pots.n_slots[0], fill), head1(pots.n_slots[1], fill) {
    out[0] = head0.data();
    out[1] = head1.data();
  }
};

TEST(ColumnScores, AreTheWeightsOfAttention) {
  constexpr int64_t kRows = 5;
  const Pots pots(kRows);
  std::vector<float> mixed(kRows * 4 * kDim);
  AttentionArgs attention = pots.Args();
  attention.out = mixed.data();
  ref::Attention(attention);
  for (const RowReduce rows : {RowReduce::kSum, RowReduce::kMax}) {
    for (const HeadReduce heads : {HeadReduce::kMean, HeadReduce::kMax, HeadReduce::kSum}) {
      Scores scores(pots);
      ColumnScoresArgs args;
      args.attention = pots.Args();
      args.row_begin = 1;
      args.row_end = 4;
      args.rows = rows;
      args.heads = heads;
      args.out = scores.out;
      ref::ColumnScores(args);
      for (int64_t kv_head = 0; kv_head < 2; ++kv_head) {
        for (int64_t slot = 0; slot < pots.n_slots[kv_head]; ++slot) {
          double of_head[2] = {0, 0};
          for (int64_t h = 0; h < 2; ++h) {
            for (int64_t row = 1; row < 4; ++row) {
              const double p = mixed[(row * 4 + kv_head * 2 + h) * kDim + slot];
              of_head[h] = rows == RowReduce::kSum ? of_head[h] + p : std::max(of_head[h], p);
            }
          }
          double expected = of_head[0] + of_head[1];
          if (heads == HeadReduce::kMean) expected /= 2;
          if (heads == HeadReduce::kMax) expected = std::max(of_head[0], of_head[1]);
          EXPECT_NEAR(scores.out[kv_head][slot], expected, 1e-6) << kv_head << " " << slot;
        }
      }
    }
  }
}

// Numbers of tools/reference/policies/keyformer.py, of which the seed's and the layer's share is NoiseMix(seed) +
// layer.
TEST(ScoreNoise, IsTheReferences) {
  struct Case {
    uint64_t seed;
    int64_t layer, head, row;
    uint32_t slot, bits;
  };
  for (const Case& c : {Case{0, 0, 0, 0, 0, 7055918}, Case{0, 0, 0, 0, 1, 7078328}, Case{7, 3, 2, 1000, 511, 3198948},
                        Case{9007199254740991, 29, 8, int64_t{1} << 40, 4095, 1813885}}) {
    const uint64_t seed = NoiseMix(NoiseMix(c.seed) + static_cast<uint64_t>(c.layer));
    const float u = NoiseUniform(NoiseKeyOf(seed, c.head, c.row), c.slot);
    EXPECT_EQ(u, (static_cast<float>(c.bits) + 0.5f) / 8388608.0f) << c.seed << " " << c.slot;
  }
  const ScoreNoise noise = {.on = true, .tau = 1, .tau_step = 0.25f, .tau_end = 2, .step = 1};
  EXPECT_EQ(noise.inverse_tau(0), 1 / 1.25f);
  EXPECT_EQ(noise.inverse_tau(9), 0.5f);
}

// softmax((z + g) / tau) from the weights of attention, which are softmax(z).
TEST(ColumnScores, VoteWithNoiseAndTemperature) {
  constexpr int64_t kRows = 4;
  const Pots pots(kRows);
  std::vector<float> mixed(kRows * 4 * kDim);
  AttentionArgs attention = pots.Args();
  attention.out = mixed.data();
  ref::Attention(attention);
  Scores scores(pots);
  ColumnScoresArgs args;
  args.attention = pots.Args();
  args.row_begin = 1;
  args.row_end = kRows;
  args.out = scores.out;
  args.noise = {.on = true, .seed = 5, .first_row = 100, .first_head = 8, .tau = 0.5f, .tau_step = 1, .tau_end = 2};
  ref::ColumnScores(args);
  const double taus[] = {0.5, 1.5, 2, 2};
  for (int64_t kv_head = 0; kv_head < 2; ++kv_head) {
    const int32_t n_slots = pots.n_slots[kv_head];
    std::vector<double> expected(n_slots, 0);
    for (int64_t h = kv_head * 2; h < kv_head * 2 + 2; ++h) {
      for (int64_t row = 1; row < kRows; ++row) {
        std::vector<double> w(n_slots);
        double sum = 0;
        for (int32_t slot = 0; slot < n_slots; ++slot) {
          const double u = NoiseUniform(NoiseKeyOf(5, 8 + h, 100 + row), static_cast<uint32_t>(slot));
          const double p = mixed[(row * 4 + h) * kDim + slot];
          w[slot] = p == 0 ? 0 : std::exp((std::log(p) - std::log(-std::log(u))) / taus[row]);
          sum += w[slot];
        }
        for (int32_t slot = 0; slot < n_slots; ++slot) expected[slot] += w[slot] / sum / 2;
      }
    }
    for (int32_t slot = 0; slot < n_slots; ++slot) {
      EXPECT_NEAR(scores.out[kv_head][slot], expected[slot], 1e-5) << kv_head << " " << slot;
    }
  }
}

TEST(ColumnScores, SumsToTheRowsAndHidesWhatTheyCannotSee) {
  const Pots pots(6);
  Scores scores(pots);
  ColumnScoresArgs args;
  args.attention = pots.Args();
  args.row_begin = 0;
  args.row_end = 3;
  args.out = scores.out;
  ref::ColumnScores(args);
  for (int h = 0; h < 2; ++h) {
    double sum = 0;
    for (int32_t s = 0; s < pots.n_slots[h]; ++s) sum += scores.out[h][s];
    EXPECT_NEAR(sum, 3, 1e-6);
    for (int32_t s = pots.n_slots[h] - 3; s < pots.n_slots[h]; ++s) EXPECT_EQ(scores.out[h][s], 0.0f) << s;
    EXPECT_GT(scores.out[h][pots.n_slots[h] - 4], 0.0f);
  }
}

TEST(ColumnScores, FollowWindowSoftCapAndSinks) {
  constexpr int64_t kRows = 3;
  const float sinks[] = {0.5f, -1, 2, 0};
  Pots pots(kRows);
  const std::vector<int32_t> first[2] = {{10, 10, 30}, {0, 5, 40}};
  const int32_t* const firsts[] = {first[0].data(), first[1].data()};
  pots.segment.first_slot = firsts;
  std::vector<float> mixed(kRows * 4 * kDim);
  AttentionArgs attention = pots.Args();
  attention.softcap = 1.5f;
  attention.sinks = sinks;
  attention.out = mixed.data();
  ref::Attention(attention);
  Scores scores(pots);
  ColumnScoresArgs args;
  args.attention = attention;
  args.row_end = kRows;
  args.heads = HeadReduce::kSum;
  args.out = scores.out;
  ref::ColumnScores(args);
  for (int64_t kv_head = 0; kv_head < 2; ++kv_head) {
    for (int64_t slot = 0; slot < pots.n_slots[kv_head]; ++slot) {
      double expected = 0;
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t h = 0; h < 2; ++h) expected += mixed[(row * 4 + kv_head * 2 + h) * kDim + slot];
      }
      EXPECT_NEAR(scores.out[kv_head][slot], expected, 1e-6) << kv_head << " " << slot;
    }
  }
}

TEST(ColumnScores, Accumulates) {
  const Pots pots(2);
  Scores plain(pots), sum(pots, 0.25f), low(pots, 0.0f), high(pots, 2.0f);
  ColumnScoresArgs args;
  args.attention = pots.Args();
  args.row_end = 2;
  args.out = plain.out;
  ref::ColumnScores(args);
  args.accumulate = true;
  args.out = sum.out;
  ref::ColumnScores(args);
  for (int32_t s = 0; s < 50; ++s) EXPECT_NEAR(sum.head0[s], plain.head0[s] + 0.25f, 1e-6);
  args.weight = 0.5f;
  ref::ColumnScores(args);
  for (int32_t s = 0; s < 50; ++s) EXPECT_NEAR(sum.head0[s], 1.5f * plain.head0[s] + 0.25f, 1e-6);
  args.weight = 1;
  args.rows = RowReduce::kMax;
  args.out = high.out;
  ref::ColumnScores(args);
  for (float x : high.head0) EXPECT_EQ(x, 2.0f);
  args.out = low.out;
  ref::ColumnScores(args);
  args.accumulate = false;
  args.out = plain.out;
  ref::ColumnScores(args);
  EXPECT_EQ(low.head0, plain.head0);
}

TEST(ColumnScores, AllHeadsAreOneGroup) {
  Pots pots(3);
  pots.n_slots[0] = 41;
  Scores each(pots), all(pots);
  ColumnScoresArgs args;
  args.attention = pots.Args();
  args.row_end = 3;
  args.out = each.out;
  ref::ColumnScores(args);
  args.all_heads = true;
  args.out = all.out;
  ref::ColumnScores(args);
  for (int32_t s = 0; s < 41; ++s) EXPECT_NEAR(all.head0[s], (each.head0[s] + each.head1[s]) / 2, 1e-7);
  for (float x : all.head1) EXPECT_TRUE(std::isnan(x)) << "all_heads writes one array";
}

// Keys that are stored with their rotation, and rows with their angles: the same scores as where both are rotated when
// they are read.
TEST(ColumnScores, StoredRotationsChangeNothing) {
  constexpr int64_t kRows = 4, kFirst = 2;
  Pots pots(kRows + kFirst);
  pots.n_slots[0] = pots.n_slots[1];
  pots.segment.first_row = kFirst;  // rows of another session come before
  pots.segment.n_rows = kRows;
  Scores plain(pots), rotated(pots);
  ColumnScoresArgs args;
  args.attention = pots.Args();
  args.row_end = kRows;
  args.out = plain.out;
  ref::ColumnScores(args);
  const int64_t n_slots = pots.n_slots[0], half = pots.rope.n_rot / 2;
  std::vector<float> cos(n_slots * half), sin(n_slots * half), row_cos((kRows + kFirst) * half, NAN), row_sin = row_cos;
  for (int64_t slot = 0; slot < n_slots; ++slot) {
    RopeAngles(pots.rope, &slot, 1, &cos[slot * half], &sin[slot * half]);
    for (std::vector<float>& keys : pots.k) {
      float* const key = &keys[slot * kDim];
      for (int64_t i = 0; i < half; ++i) {
        const float a = key[i], b = key[i + half], c = cos[slot * half + i], s = sin[slot * half + i];
        key[i] = (a * c - b * s) * pots.rope.magnitude;
        key[i + half] = (b * c + a * s) * pots.rope.magnitude;
      }
    }
  }
  std::copy_n(&cos[(n_slots - kRows) * half], kRows * half, &row_cos[kFirst * half]);
  std::copy_n(&sin[(n_slots - kRows) * half], kRows * half, &row_sin[kFirst * half]);
  args.attention.keys_rotated = true;
  args.attention.row_cos = row_cos.data();
  args.attention.row_sin = row_sin.data();
  args.out = rotated.out;
  ref::ColumnScores(args);
  for (int h = 0; h < 2; ++h) {
    for (int64_t s = 0; s < n_slots; ++s) EXPECT_NEAR(rotated.out[h][s], plain.out[h][s], 1e-5) << h << " " << s;
  }
}

}  // namespace
}  // namespace weir
