// weir-plugin: command
// SPDX-License-Identifier: Apache-2.0
// weir pruners: the pruners of picture rows, with options and defaults.
#include "commands/catalogue.h"
#include "commands/command.h"
#include "prune/pruner.h"

namespace weir::app {
namespace {

Status ListPruners() {
  for (const PrunerInfo* info : AllPrunerInfos()) {
    PrintCatalogueHead(info->name, info->summary, info->paper);
    PrintCatalogueOptions({"pruner", info->name, {&kKeepOption, 1}});
    PrintCatalogueOptions({"pruner", info->name, info->options});
  }
  return Status();
}

}  // namespace

extern const CommandInfo kPruners;
const CommandInfo kPruners = {.name = "pruners",
                              .summary = "list the pruners of picture tokens (--prune) with their options and defaults",
                              .group = CommandGroup::kInspect,
                              .add = [](CLI::App&) -> Action { return ListPruners; }};

}  // namespace weir::app
