// SPDX-License-Identifier: Apache-2.0
// Observation windows, shared by SnapKV, PyramidKV and AdaKV. The last rows of a prompt vote for the slots before them,
// the votes are pooled over neighbours, and the window's own slots are kept.
// Paper: "SnapKV: LLM Knows What You are Looking for Before Generation" (NeurIPS 2024), section 4, listing 1.
//
//   v_j = sum over the last `window` rows of A[row, j], j before the window      v'_j = pool of v, zeros beyond both
//   ends
#pragma once

#include <vector>

#include "policy/policy.h"
#include "policy/rank.h"

namespace weir {

struct Observation {
  int32_t window = 0, kernel = 1;
  Pooling pooling = Pooling::kMax;
  HeadReduce reduce = HeadReduce::kMean;
  int32_t capacity = 0;  // slots that are kept after a prompt; 0: compress only a full pot
  bool absolute = false;

  // From the options below. kInvalidArgument for an even kernel.
  static Result<Observation> From(const PolicyOptions& options);

  // Per KV head, the last `window` rows of a prompt, or of the chunk before the pot is full.
  PolicyNeeds Needs() const;
  // The result of Policy::TargetAfterPrompt().
  int32_t TargetAfterPrompt(int32_t n_slots) const;
  // Newest slots of a view that are kept whatever their score. If the window would fill the budget, it gets half of it.
  // `room` is the budget less the pinned slots (ProtectedRecent).
  int32_t WindowOf(const SlotView& view, int32_t n_keep, int32_t room) const;
};

// Pooled scores of the slots before the window; the window's own scores are not pooled.
// `pooled` has one entry per slot before the window.
void PoolCandidates(const Observation& observation, const SlotView& view, std::span<float> pooled);

constexpr PolicyOptionInfo WindowOption(int32_t fallback) {
  return {.key = "window",
          .fallback = static_cast<double>(fallback),
          .min = 1,
          .max = 1 << 20,
          .integral = true,
          .help = "newest slots, which are always kept and whose rows vote",
          .tune = "8|16|32|64"};
}
constexpr PolicyOptionInfo KernelOption(int32_t fallback) {
  return {.key = "kernel",
          .fallback = static_cast<double>(fallback),
          .min = 1,
          .max = 255,
          .integral = true,
          .help = "width of pooling over the votes, odd; 1 = none",
          .tune = "1|3|5|7|13"};
}
constexpr PolicyOptionInfo PoolingOption(const char* fallback) {
  return TextOption("pooling", fallback, "how to pool neighbours", "avg|max");
}
inline constexpr PolicyOptionInfo kReduceOption =
    TextOption("reduce", "mean", "how to combine the query heads of a KV head, before pooling", "mean|max|sum");
inline constexpr PolicyOptionInfo kCapacityOption = {
    .key = "capacity",
    .fallback = 0,
    .min = 0,
    .max = 1 << 30,
    .integral = true,
    .help = "slots to keep after a prompt; 0 = compress only a full pot"};
inline constexpr PolicyOptionInfo kPositionsOption =
    TextOption("positions", "cache",
               "abs: positions in the stream, as published, which are limited to the trained context", "cache|abs");

}  // namespace weir
