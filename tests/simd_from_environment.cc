// SPDX-License-Identifier: Apache-2.0
// Linked into the programs of conformance/: WEIR_SIMD, as of `weir`, holds them to a set of instructions.
#include <cstdio>
#include <cstdlib>

#include "backend/simd.h"

namespace {

const bool limited = [] {
  const char* level = std::getenv("WEIR_SIMD");
  if (level != nullptr && !weir::LimitSimd(level)) {
    std::fprintf(stderr, "WEIR_SIMD is '%s', which this machine does not have\n", level);
    std::_Exit(1);
  }
  return true;
}();

}  // namespace
