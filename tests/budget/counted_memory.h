// SPDX-License-Identifier: Apache-2.0
// Every byte that this process takes: blocks of the heap and anonymous mappings, counted as they are made.
//
// Linking counted_memory.cc replaces malloc() and its kin, mmap() and munmap() of the whole program by ones that count.
// Stacks of threads and the heap's own bookkeeping are not counted. Figures are exact and the same in every run, unlike
// those of the kernel, which keeps its counters per processor.
#pragma once

#include <cstdint>

namespace weir::testing {

// Bytes in use now, and the most since the last ResetTakenPeak().
int64_t TakenBytes();
int64_t TakenPeak();
void ResetTakenPeak();

}  // namespace weir::testing
