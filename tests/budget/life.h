// SPDX-License-Identifier: Apache-2.0
// One draw of the budget's property test: a model, options of a session, and what is done with it, with what must hold
// after every step.
//
//   - The plan is what the session's ledger may hold, and what it does hold once everything was made.
//   - The ledger never refuses anything that was planned: no step fails for want of bytes.
//   - The process takes no more than the plan and kBeyondPlan: blocks of the heap and mappings, counted exactly.
#pragma once

#include <cstdint>
#include <string>

namespace weir::testing {

// What a session and those who work with it may take beside its plan, whatever its pot and however long its stream:
// objects, texts on their way, lines of a trace. docs/performance.md says so.
inline constexpr int64_t kBeyondPlan = 128 << 10;

struct Verdict {
  enum Kind : int32_t { kHeld, kRefused, kBroken } kind = kBroken;
  int32_t n_steps = 0, n_failed_steps = 0;  // the latter: full pots and the like
  int32_t n_selections = 0, n_pictures = 0, n_searched = 0, n_recalled = 0, n_guessed = 0, n_forks = 0, n_restored = 0;
  static constexpr int32_t Verdict::*kCounts[] = {
      &Verdict::n_steps,    &Verdict::n_failed_steps, &Verdict::n_selections,
      &Verdict::n_pictures, &Verdict::n_searched,     &Verdict::n_recalled,
      &Verdict::n_guessed,  &Verdict::n_forks,        &Verdict::n_restored};
  int64_t planned = 0;            // of the first session
  int64_t most_beyond = 0;        // taken beside the plans
  int64_t most_pages_beyond = 0;  // of the pages that the kernel counts
  char drawn[1500] = {};          // in words
  char broken[700] = {};          // what does not hold, or why it was refused
};

// `folder`: for files, exists and is the draw's own.
void Live(uint64_t seed, const std::string& folder, Verdict* verdict);

}  // namespace weir::testing
