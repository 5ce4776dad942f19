// SPDX-License-Identifier: Apache-2.0
// What recall does, in the user's syntax: "words", or "words:passages=3,gate=0.5": a selector and its options, as for
// policies.
#pragma once

#include <string>
#include <string_view>

#include "base/options.h"
#include "base/status.h"
#include "recall/selectors/selector.h"

namespace weir {

struct RecallSpec {
  const SelectorInfo* info = nullptr;  // nullptr: no recall
  Options options;
  std::string text;  // normalised: the name and every option with its effective value

  int32_t n_passages() const { return options.Int("passages"); }
  double gate() const { return options.Number("gate"); }
  double margin() const { return options.Number("margin"); }
  int32_t near() const { return options.Int("near"); }
  int32_t context() const { return options.Int("context"); }
  bool answers() const { return options.Int("answers") != 0; }
};

// Options of every selector, beside its own.
std::span<const OptionInfo> CommonRecallOptions();

// "off" gives an empty spec. kNotFound for an unknown selector (lists the known ones), kInvalidArgument for unknown
// keys and bad values.
Result<RecallSpec> ParseRecallSpec(std::string_view text);

}  // namespace weir
