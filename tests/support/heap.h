// SPDX-License-Identifier: Apache-2.0
// What the process really has on its heap, beside what was reserved for it.
#pragma once

#include <malloc.h>

#include <cstdint>

namespace weir::testing {

// Bytes of all blocks that are in use; 0 under a sanitizer, which has a heap of its own.
inline int64_t HeapInUse() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

}  // namespace weir::testing
