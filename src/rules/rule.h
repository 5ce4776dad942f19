// SPDX-License-Identifier: Apache-2.0
// A rule: something that a stream is watched for, in words.
//
// "a parcel lies at the door" is a condition: the model is asked whether it is true, and the odds are those of yes
// against no. "What colour is the light? => red" is a question with the answer that counts: the odds are those of that
// answer against any other. Answers are compared by their first token.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "io/json.h"
#include "rules/tracker.h"

namespace weir {

struct Rule {
  std::string id;       // letters, digits, - and _; at most 64
  std::string text;     // the condition, or the question
  std::string answer;   // of a question; empty: a condition
  std::string webhook;  // address that a server sends its events to; empty: none
  RuleTuning tuning;

  // As the user writes it: "CONDITION" or "QUESTION => ANSWER".
  std::string when() const { return answer.empty() ? text : text + " => " + answer; }
};

inline constexpr size_t kMaxRuleBytes = 1000;
inline constexpr int kMaxRules = 64;  // of one stream
inline constexpr size_t kMaxWebhookBytes = 2048;

// A rule without an id. kInvalidArgument for a text that is empty, longer than kMaxRuleBytes (as given, or as when())
// or not UTF-8, or an arrow without a question or an answer.
Result<Rule> ParseRule(std::string_view when);
Status CheckRuleId(std::string_view id);

// {"id", "when", "webhook", "on", "off", "least", "begin", "end", "calibrate", "cooldown_ms"}; all but `when` may be
// missing.
// Errors of Fields, ParseRule(), CheckRuleId() and CheckTuning().
Result<Rule> RuleFromJson(const Json& json);
Json ToJson(const Rule& rule);

}  // namespace weir
