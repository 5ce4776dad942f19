// SPDX-License-Identifier: Apache-2.0
// Checks every load and store of a kernel that runs on the twin. For tests only.
//
// Kernels are compiled with the instrumentation of -fsanitize=thread and of parts of -fsanitize=undefined
// (tests/CMakeLists.txt). Its calls end here instead of in those sanitizers' libraries, which know neither the twin's
// threads nor its barriers. What is refused:
//
//   - an access outside the block's shared memory and the device's allocations
//   - an access at an address that is not a multiple of its size, or of its type's alignment
//   - a read of shared memory that no thread of the block has written
//   - a race: a write, and an access by another thread to the same byte, that no barrier separates. Barrier() separates
//     the threads of a block, WarpBarrier() those of a warp, nothing the blocks of a launch. A shuffle does not: it
//     exchanges registers.
//   - an index beyond an array's bound, an overflow of signed integers, a conversion to an integer that cannot hold it
//
// Every byte has two marks: who wrote it last, and who has read it since.
#pragma once

#include <cstdint>
#include <string>

namespace weir::twin {

// What kernels may access, besides shared memory: [address, address + n_bytes).
void AllowMemory(const void* address, int64_t n_bytes);
void ForbidMemory(const void* address);
// Whether a copy of so many bytes stays within the allocation in which it begins; true outside of all.
bool StaysWithin(const void* address, int64_t n_bytes);

// The running thread of a block, for the checks. grid.cc keeps it up to date.
struct Watched {
  bool on = false;  // a kernel's code is running
  const uint8_t* stack = nullptr;
  int64_t stack_bytes = 0;
  int thread = 0;
};
inline thread_local Watched watched;

// Accesses are checked in one of so many launches. Whole models launch every kernel thousands of times: a larger
// number, and a prime, which meets every kernel of a pass in turn.
inline int watch_one_in = 1;

void WatchLaunch();
void WatchBlock(const uint8_t* shared, int64_t shared_bytes);
// All threads of the block, or of a warp, passed a barrier.
void WatchBarrier();
void WatchWarpBarrier(int warp);

// Keeps the first problem of a block.
void Refuse(const std::string& what);
// The first problem, and forgets it; "" when there was none.
std::string TakeProblem();

}  // namespace weir::twin
