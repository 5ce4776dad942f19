// SPDX-License-Identifier: Apache-2.0
// `weir watch --follow`: rules over a text that grows.
#pragma once

#include <string>

#include "answer.h"
#include "rule_watch.h"

namespace weir::app {

struct TextWatchFlags {
  std::string follow, system;
  int64_t report_ms = 0;  // 0: only at the end
  int64_t skip_same = 0;  // RepeatedLines' window; 0: all lines are read
  bool whole = false, json = false;
};

Status WatchText(const ModelFlags& model_flags, const PotFlags& pot_flags, const RuleFlags& rule_flags,
                 std::vector<Rule> rules, const TextWatchFlags& flags);

}  // namespace weir::app
