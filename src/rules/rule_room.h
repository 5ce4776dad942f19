// SPDX-License-Identifier: Apache-2.0
// The memory of rules beside a session's pot: what they say, what they learned, their questions as tokens, and the
// events of one check. It is bounded, and part of the session's plan.
#pragma once

#include <cstdint>

#include "engine/session_plan.h"
#include "rules/rule.h"

namespace weir {

// The JSON of an event is shorter: a rule's text and the words of the evidence, escaped, and numbers.
inline constexpr int64_t kMaxEventBytes = 16 << 10;

// What SessionOptions::beside must contain for `n_rules` rules of at most `room` tokens; whoever has the RuleSet
// reserves it in the session's ledger. `webhooks`: rules may name an address.
PlanItem RuleRoom(int64_t n_rules, int32_t room, bool webhooks = false);

}  // namespace weir
