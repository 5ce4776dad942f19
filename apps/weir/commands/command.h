// SPDX-License-Identifier: Apache-2.0
// The interface of a subcommand: its name, its help line, its flags, and its action.
//
// A subcommand is one file of this folder, and the folder is the list. The file begins with the line
// `// weir-plugin: command` and defines one CommandInfo named after itself (commands/read.cc defines kRead);
// cmake/weir.cmake writes the table.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <span>

#include "base/status.h"

namespace weir::app {

// What a command does once its flags are parsed. main() prints a bad status as one line and turns it into the exit
// code (Fail() in common.h).
using Action = std::function<Status()>;

// The headings of `weir --help`, in this order.
enum class CommandGroup { kAnswer, kInspect, kMeasure };

struct CommandInfo {
  const char* name;     // what the user types; the file's name
  const char* summary;  // a line of `weir --help`, in small letters and without a full stop
  CommandGroup group;
  // Adds the command's flags to `sub` and returns its action. It is called for every command at every start, so it must
  // do nothing else; the variables that the flags fill are owned by the returned action.
  Action (*add)(CLI::App& sub);
};

// All of them, in the order of their names.
std::span<const CommandInfo* const> AllCommandInfos();

// Makes `info`, a CommandInfo or a SuiteInfo, a subcommand of `parent`. Parsing it sets *chosen, which must outlive
// the parsing.
template <typename Info>
CLI::App* AddSubcommand(CLI::App& parent, const Info& info, Action* chosen) {
  CLI::App* sub = parent.add_subcommand(info.name, info.summary);
  sub->callback([chosen, action = info.add(*sub)] { *chosen = action; });
  return sub;
}

}  // namespace weir::app
