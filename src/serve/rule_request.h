// SPDX-License-Identifier: Apache-2.0
// Rules that a client adds to a session and removes from it, whichever way its request came.
#pragma once

#include <string>

#include "io/json.h"
#include "serve/host.h"
#include "serve/session_table.h"

namespace weir {

// Errors of RuleFromJson(); kInvalidArgument for a webhook that the server does not send to.
Result<Rule> ParseRuleRequest(const Host& host, const Json& body);
// Returns the rule as JSON. kInvalidArgument if the session has no room for rules; errors of CheckFramesForRules() and
// RuleSet::Add(). [engine]
Result<Json> AddRule(StreamSession& stream, Rule rule);
// kNotFound. [engine]
Status RemoveRule(const Host& host, StreamSession& stream, const std::string& rule);

}  // namespace weir
