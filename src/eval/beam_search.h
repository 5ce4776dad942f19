// SPDX-License-Identifier: Apache-2.0
// Beam search: the likeliest answer among those that keep up with the `n_beams` likeliest beginnings at every length.
// Captions are published with five beams (BLIP-2, CATP).
//
// The score of an answer is the sum of log P over its tokens, the one that ends it included, divided by their number to
// the power of `length_penalty`. Answers that ended are kept, `n_beams` of them at most, and the search is over when no
// beginning can become better than the worst of these. Ties: the better beam, then the lower token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"

namespace weir {

struct BeamOptions {
  int32_t n_beams = 1;
  int32_t most_tokens = 16;   // of an answer
  double length_penalty = 1;  // 0: a sum, which favours short answers
};

struct BeamAnswer {
  std::vector<int32_t> tokens;  // with the one that ends it, if it ended
  double score = 0;
};

// The model, seen from the search.
struct BeamModel {
  using Each = std::function<void(size_t beam, std::span<const float> logits)>;
  // The logits after each of these beginnings, all of equal length.
  std::function<Status(std::span<const std::vector<int32_t>> beams, const Each& each)> logits;
  // Whether an answer ends with its last token.
  std::function<bool(std::span<const int32_t> tokens)> ended;
};

// `first`: the logits before the first token. Errors of model.logits. REQUIRES: n_beams and most_tokens above 0.
Result<BeamAnswer> SearchBeams(const BeamOptions& options, std::span<const float> first, const BeamModel& model);

}  // namespace weir
