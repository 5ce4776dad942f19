// SPDX-License-Identifier: Apache-2.0
// Flags of llama.cpp that have no meaning or another meaning here, each with a line of advice, so that a llama.cpp
// command line is not misread. docs/from-llama-cpp.md has the same as a table.
#pragma once

#include <string_view>

namespace weir::app {

// What to do instead of `flag`, as a part of a sentence; nullptr for a flag that is not known to be foreign. "-x=1" and
// "--x=1" count as "-x" and "--x".
const char* InsteadOf(std::string_view flag);

// Whether the command line library, to which a flag with one dash is a letter and its value, would read `argument` as
// something else than it means there: -fa as -f a, -no-cnv as -n o-cnv.
bool WouldBeMisread(std::string_view argument);

}  // namespace weir::app
