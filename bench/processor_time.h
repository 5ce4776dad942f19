// SPDX-License-Identifier: Apache-2.0
// Processor time of this process, all threads, in seconds: what other work on the machine disturbs least.
#pragma once

#include <time.h>

namespace weir {

inline double ProcessSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace weir
