// SPDX-License-Identifier: Apache-2.0
// What recall does, in the user's syntax: "words", or "words:passages=3,restore=kv": a selector, its options and those
// of every selector and restorer, as for policies.
#pragma once

#include <string>
#include <string_view>

#include "base/options.h"
#include "base/status.h"
#include "recall/restorers/restorer.h"
#include "recall/selectors/selector.h"

namespace weir {

struct RecallSpec {
  const SelectorInfo* info = nullptr;  // nullptr: no recall
  const RestorerInfo* restorer = nullptr;
  Options options;
  std::string text;  // normalised: the name and every option with its effective value

  int32_t n_passages() const { return options.Int("passages"); }
  double gate() const { return options.Number("gate"); }
  double margin() const { return options.Number("margin"); }
  int32_t near() const { return options.Int("near"); }
  int32_t context() const { return options.Int("context"); }
  bool answers() const { return options.Int("answers") != 0; }
  int32_t rerank() const { return options.Int("rerank"); }
  // The archive has keys, or keys and values.
  bool needs_vectors() const { return info != nullptr && (info->needs_keys || restorer->needs_kv); }
};

// Options of every selector, beside its own: those of the restorers among them.
std::span<const OptionInfo> CommonRecallOptions();

// "off" gives an empty spec. kNotFound for an unknown selector or restorer (lists the known ones), kInvalidArgument for
// unknown keys and bad values, and, unless in an exam, for a selector that has to be told where the answer is.
Result<RecallSpec> ParseRecallSpec(std::string_view text, bool exam = false);

}  // namespace weir
