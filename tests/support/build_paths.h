// SPDX-License-Identifier: Apache-2.0
// Where this checkout and its program lie. The paths are compiled into one small source (cmake/weir.cmake), not onto
// the command line of every test, so that checkouts in different folders share a compiler cache.
#pragma once

#include <string>

namespace weir {

// The root of the checkout, without a slash at its end.
std::string SourceDir();
// The program that users run.
std::string ProgramPath();

}  // namespace weir
