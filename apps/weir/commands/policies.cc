// weir-plugin: command
// SPDX-License-Identifier: Apache-2.0
// weir policies: the eviction policies, with options and defaults.
#include <cstdio>

#include "commands/catalogue.h"
#include "commands/command.h"
#include "policy/policy.h"
#include "print.h"

namespace weir::app {
namespace {

Status ListPolicies() {
  for (const PolicyInfo* info : AllPolicyInfos()) {
    PrintCatalogueHead(info->name, info->summary, info->paper);
    if (auto policy = info->make(ParsePolicySpec(info->name)->options); policy.ok()) {
      const PolicyNeeds needs = (*policy)->Needs();
      Print(stdout, "    positions {}, smallest pot {}{}\n", PositionsName(needs.positions), needs.min_slots,
            needs.probe.empty() ? "" : " and the catalyst's tokens");
    }
    PrintCatalogueOptions({"policy", info->name, info->options});
  }
  return Status();
}

}  // namespace

extern const CommandInfo kPolicies;
const CommandInfo kPolicies = {.name = "policies",
                               .summary = "list the eviction policies with their options and defaults",
                               .group = CommandGroup::kInspect,
                               .add = [](CLI::App&) -> Action { return ListPolicies; }};

}  // namespace weir::app
