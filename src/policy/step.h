// SPDX-License-Identifier: Apache-2.0
// How far policies that evict at every step shrink a pot. Freeing exactly the needed slots would move the whole pot for
// every token, which costs more than attending to a few slots fewer saves; so several slots are evicted at once.
#pragma once

#include <algorithm>

#include "policy/policy.h"

namespace weir {

inline constexpr PolicyOptionInfo kStepOption = {
    .key = "step",
    .fallback = 0,
    .min = 0,
    .max = 1 << 20,
    .integral = true,
    .help = "slots to free at once while decoding; 0 = 1/16 of the pot, 1 = exactly one at a time"};

// Policy::TargetSlots(): frees `step` slots or as many as the incoming tokens need, whichever is more. At least `floor`
// are kept, unless the incoming tokens leave fewer.
inline int32_t StepTarget(int32_t step, int32_t n_slots, int32_t n_coming, int32_t floor) {
  if (step <= 0) step = n_slots / 16;
  return std::min(n_slots - n_coming, std::max(floor, n_slots - std::max(n_coming, step)));
}

}  // namespace weir
