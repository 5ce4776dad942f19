// SPDX-License-Identifier: Apache-2.0
// Sampler: logits -> the next token.
//
// The usual steps in llama.cpp's order: repeat penalty, top-k, top-p, min-p, temperature, then one draw. The same
// options, seed, history and logits give the same token on every platform: the generator is our own (SplitMix64), and
// nothing depends on the standard library's distributions.
//
// Sources: top-p Holtzman et al. 2020; min-p Nguyen et al. 2024; repeat penalty Keskar et al. 2019.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace weir {

struct SamplerOptions {
  float temperature = 0.8f;     // 0 or less: always the most likely token, the lowest id of equals
  int32_t top_k = 40;           // keep this many of the most likely; 0 or less keeps all
  float top_p = 0.95f;          // keep the most likely until they sum to this; in (0, 1], 1 keeps all
  float min_p = 0.05f;          // drop tokens less likely than this share of the best; in [0, 1], 0 keeps all
  float repeat_penalty = 1.0f;  // divides positive and multiplies negative logits of recent tokens; 1 is off
  int32_t repeat_last_n = 64;   // how many tokens count as recent; 0 is off, -1 all of the last million; at most 2^20
  uint64_t seed = 0;

  // kInvalidArgument names the option, its value and its range.
  Status Validate() const;
};

// Copyable: a copy continues with the same history and draws. Not thread-safe.
class Sampler {
 public:
  struct Candidate {
    int32_t id;
    float logit;
    double probability;  // of the draw; the candidates' probabilities sum to 1
  };

  // kInvalidArgument from Validate().
  static Result<Sampler> Create(const SamplerOptions& options);

  // Draws a token; does not remember it. kInvalidArgument: no logits; kCorrupt: a logit is infinite or NaN (the message
  // names the first such id).
  Result<int32_t> Sample(std::span<const float> logits);
  // How many of the largest logits decide the next draw; 0: all of them do, or any could.
  int32_t n_deciding() const;
  // Sample() from only those logits: ids and logits of the n_deciding() largest of a vocabulary, or all of a smaller
  // one; largest first, the lowest id first among equals, infinite and NaN before all (as in ops/top_logits.h). The
  // same token, the same errors. REQUIRES: n_deciding() > 0.
  Result<int32_t> SampleMostLikely(std::span<const int32_t> ids, std::span<const float> logits);
  // The candidates Sample() would draw from, most likely first. Greedy options give one candidate.
  Result<std::vector<Candidate>> Candidates(std::span<const float> logits) const;
  // Remembers a token that was read or drawn, for the repeat penalty.
  void Accept(int32_t id);
  // Forgets the history and restarts the draws from the seed.
  void Reset();

  // The state that decides the next draws besides the options: a sampler with the same options draws the same after
  // restoring it.
  struct State {
    uint64_t draws = 0;
    std::vector<int32_t> recent;  // oldest first
  };
  State Save() const;
  // With options that remember fewer tokens, keeps the newest of them.
  void Restore(const State& state);

  const SamplerOptions& options() const { return options_; }

 private:
  // Tokens that the repeat penalty applies to, ascending, each once; none when it is off.
  std::vector<int32_t> Penalised() const;
  float Penalise(float logit) const;
  // How many candidates top-k leaves.
  size_t MostKept(size_t n) const;
  // Candidates in order of falling likelihood -> those that remain for the draw.
  std::vector<Candidate> Narrow(std::vector<Candidate> candidates) const;
  int32_t Draw(std::span<const Candidate> candidates);
  explicit Sampler(const SamplerOptions& options) : options_(options) { Reset(); }

  SamplerOptions options_;
  uint64_t rng_ = 0;
  std::vector<int32_t> recent_;  // ring of at most repeat_last_n ids
  size_t recent_next_ = 0;
};

}  // namespace weir
