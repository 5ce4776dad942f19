// weir-plugin: command
// SPDX-License-Identifier: Apache-2.0
// weir eval: the measurement protocols. One JSON line per figure; one file of suites/ per suite.
#include <memory>

#include "suites/suite.h"

namespace weir::app {
namespace {

Action AddEval(CLI::App& sub) {
  sub.require_subcommand(1);
  auto chosen = std::make_shared<Action>();
  for (const SuiteInfo* suite : AllSuiteInfos()) AddSubcommand(sub, *suite, chosen.get());
  return [chosen] { return (*chosen)(); };
}

}  // namespace

extern const CommandInfo kEval;
const CommandInfo kEval = {.name = "eval",
                           .summary = "measure a model and a policy with the papers' protocols",
                           .group = CommandGroup::kMeasure,
                           .add = AddEval};

}  // namespace weir::app
