// SPDX-License-Identifier: Apache-2.0
// Log-likelihoods of tokens and of their alternatives, for `logprobs`.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "model/architecture.h"

namespace weir {

struct ScoredToken {
  int32_t id = -1;
  bool scored = false;                         // false: the first token of a text, which nothing predicts
  float logprob = 0;                           // natural logarithm of its probability at temperature 1
  std::vector<std::pair<int32_t, float>> top;  // the most likely tokens, best first; ties by id
};

// REQUIRES: 0 <= id < logits.size(), n_top >= 0.
ScoredToken ScoreToken(std::span<const float> logits, int32_t id, int n_top);

// Scores every token of a prompt, a few rows at a time, so that a chunk x vocabulary matrix is never allocated.
class PromptScorer {
 public:
  // Reserves Bytes() in `ledger`.
  static Result<std::unique_ptr<PromptScorer>> Make(Model& model, Backend& backend, Ledger& ledger);
  static int64_t Bytes(const Model& model, const Backend& backend);

  // Row r of `hidden`, host memory [targets.size(), n_embd], predicts targets[r]; appends one ScoredToken per row to
  // *out. Returns device errors.
  Status Score(const float* hidden, std::span<const int32_t> targets, int n_top, std::vector<ScoredToken>* out);

 private:
  static constexpr int64_t kRows = 8;
  PromptScorer(Model& model, Backend& backend) : model_(model), backend_(backend) {}
  Model& model_;
  Backend& backend_;
  Buffer logits_, scratch_, hidden_;
};

}  // namespace weir
