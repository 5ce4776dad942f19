// SPDX-License-Identifier: Apache-2.0
// How many tokens a question asked aside may have.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/session_plan.h"

namespace weir {

// SessionPlan::aside_slots, or fewer where layers have windows in slots of their own: the question's last token must
// see its first. Session::AskAside() refuses more.
inline int32_t AsideRoom(const SessionPlan& plan) {
  const int32_t slots = plan.aside_slots;
  return plan.pot.windows.n_slots == 0 ? slots : std::min(slots, plan.pot.windows.window - 1);
}

}  // namespace weir
