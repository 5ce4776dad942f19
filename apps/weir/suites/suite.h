// SPDX-License-Identifier: Apache-2.0
// The interface of a suite of `weir eval`: its name, its help line, its flags, and its action.
//
// A suite is one file of this folder, and the folder is the list. The file begins with the line
// `// weir-plugin: suite` and defines one SuiteInfo named after itself (suites/passkey.cc defines kPasskey);
// cmake/weir.cmake writes the table. What all suites share is in exam.h, what those with pictures share in
// picture_exam.h. A protocol that is worth a test of its own is a file of src/eval.
#pragma once

#include <span>

#include "commands/command.h"

namespace weir::app {

struct SuiteInfo {
  const char* name;     // what the user types after `weir eval`; the file's name
  const char* summary;  // a line of `weir eval --help`, in small letters and without a full stop
  // As CommandInfo::add.
  Action (*add)(CLI::App& sub);
};

// All of them, in the order of their names.
std::span<const SuiteInfo* const> AllSuiteInfos();

}  // namespace weir::app
