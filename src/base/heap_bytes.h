// SPDX-License-Identifier: Apache-2.0
// What a block of so many bytes takes on the heap: for bounds on memory that strings and vectors take themselves.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weir {

// With the header that glibc's malloc() puts before it, and its rounding. A string's capacity may be twice its length
// where it grew; one that was copied or moved from a text of its length has no more.
constexpr int64_t HeapBytes(int64_t bytes) {
  constexpr int64_t kHeader = 8, kLeast = 32, kUnit = 16;
  return bytes <= 0 ? 0 : std::max(kLeast, (bytes + kHeader + kUnit - 1) / kUnit * kUnit);
}

}  // namespace weir
