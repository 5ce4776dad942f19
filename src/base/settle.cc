// SPDX-License-Identifier: Apache-2.0
#include "base/settle.h"

#include <sys/mman.h>

#include <cerrno>

namespace weir {

bool UseHugePage(uint8_t** at, const uint8_t* end) {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, which glibc 2.36 does not have
  constexpr int64_t kHugePageBytes = int64_t{2} << 20;
  if (reinterpret_cast<uintptr_t>(*at) % kHugePageBytes != 0 || end - *at < kHugePageBytes) return false;
  uint8_t* const page = *at;
  *at += kHugePageBytes;
  return madvise(page, kHugePageBytes, kCollapse) == 0 || errno != EINVAL;  // EINVAL: no such pages here
}

}  // namespace weir
