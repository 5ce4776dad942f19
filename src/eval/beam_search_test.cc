// SPDX-License-Identifier: Apache-2.0
#include "eval/beam_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "base/rng.h"

namespace weir {
namespace {

using Tokens = std::vector<int32_t>;
constexpr int32_t kEnd = 0, kVocab = 4;

// A made-up language: log P of the next token after any beginning, from a seed.
std::vector<float> LogitsAfter(uint64_t seed, std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) seed = seed * 31 + static_cast<uint64_t>(token) + 1;
  Rng rng(seed);
  std::vector<float> out(kVocab);
  for (float& x : out) x = static_cast<float>(rng.Uniform() * 6);
  return out;
}

BeamModel ModelOf(uint64_t seed, int* n_calls = nullptr) {
  BeamModel model;
  model.ended = [](std::span<const int32_t> tokens) { return tokens.back() == kEnd; };
  model.logits = [=](std::span<const Tokens> beams, const BeamModel::Each& each) {
    if (n_calls != nullptr) ++*n_calls;
    for (size_t i = 0; i < beams.size(); ++i) each(i, LogitsAfter(seed, beams[i]));
    return Status();
  };
  return model;
}

BeamAnswer SearchIn(uint64_t seed, const BeamOptions& options) {
  return SearchBeams(options, LogitsAfter(seed, {}), ModelOf(seed)).value();
}

double LogP(uint64_t seed, std::span<const int32_t> tokens) {
  double sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::vector<float> logits = LogitsAfter(seed, tokens.first(i));
    double all = 0;
    for (const float x : logits) all += std::exp(static_cast<double>(x));
    sum += logits[static_cast<size_t>(tokens[i])] - std::log(all);
  }
  return sum;
}

// Every answer that ends within `most` tokens, and every one that is cut there.
void ForEachAnswer(Tokens* tokens, size_t most, const std::function<void(const Tokens&)>& each) {
  for (int32_t token = 0; token < kVocab; ++token) {
    tokens->push_back(token);
    if (token == kEnd || tokens->size() == most) {
      each(*tokens);
    } else {
      ForEachAnswer(tokens, most, each);
    }
    tokens->pop_back();
  }
}

TEST(BeamSearchTest, OneBeamIsGreedy) {
  for (uint64_t seed = 1; seed < 40; ++seed) {
    Tokens greedy;
    do {
      const std::vector<float> logits = LogitsAfter(seed, greedy);
      greedy.push_back(static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    } while (greedy.back() != kEnd && greedy.size() < 8);
    EXPECT_EQ(SearchIn(seed, {.n_beams = 1, .most_tokens = 8, .length_penalty = 0}).tokens, greedy) << seed;
  }
}

// With more beams than there are beginnings the best of all answers is found.
TEST(BeamSearchTest, EnoughBeamsFindTheBest) {
  for (const double penalty : {0.0, 1.0, 2.0}) {
    for (uint64_t seed = 1; seed < 25; ++seed) {
      const auto score = [&](const Tokens& tokens) {
        return LogP(seed, tokens) / std::pow(static_cast<double>(tokens.size()), penalty);
      };
      double best = -1e9;
      Tokens tokens;
      ForEachAnswer(&tokens, 4, [&](const Tokens& answer) { best = std::max(best, score(answer)); });
      const BeamAnswer found = SearchIn(seed, {.n_beams = 400, .most_tokens = 4, .length_penalty = penalty});
      EXPECT_NEAR(found.score, best, 1e-9) << seed << " with " << penalty;
      EXPECT_NEAR(score(found.tokens), best, 1e-9);
    }
  }
}

// A greedy answer may fall out of the five beams, but rarely.
TEST(BeamSearchTest, FiveBeamsAreOftenBetterThanOne) {
  int better = 0, worse = 0;
  for (uint64_t seed = 1; seed < 60; ++seed) {
    const BeamAnswer one = SearchIn(seed, {.n_beams = 1, .most_tokens = 6, .length_penalty = 0}),
                     five = SearchIn(seed, {.n_beams = 5, .most_tokens = 6, .length_penalty = 0});
    better += five.score > one.score + 1e-9;
    worse += five.score < one.score - 1e-9;
  }
  EXPECT_GT(better, 10);
  EXPECT_LE(worse, 2);
}

TEST(BeamSearchTest, EndsWhenNothingCanBecomeBetter) {
  int n_calls = 0;
  // The end is almost certain at once.
  const std::vector<float> first = {20, 0, 0, 0};
  const BeamAnswer answer =
      SearchBeams({.n_beams = 1, .most_tokens = 50, .length_penalty = 0}, first, ModelOf(3, &n_calls)).value();
  EXPECT_EQ(answer.tokens, Tokens{kEnd});
  EXPECT_EQ(n_calls, 0);
}

TEST(BeamSearchTest, AnErrorEndsTheSearch) {
  BeamModel model = ModelOf(1);
  model.ended = [](std::span<const int32_t>) { return false; };
  model.logits = [](std::span<const Tokens>, const BeamModel::Each&) { return Cancelled("stopped"); };
  EXPECT_EQ(SearchBeams({.n_beams = 2}, LogitsAfter(1, {}), model).status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace weir
