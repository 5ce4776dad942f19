// SPDX-License-Identifier: Apache-2.0
// What a program does beside its work, once it has started: in short steps with pauses. Not in a class of threads that
// run only when nothing else does: such a thread may hold a lock of the system, on this process's memory or on a disk's
// journal, for as long as the machine is busy.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "base/clock.h"

namespace weir {

// Calls step() until it returns false or `stop`; pauses take four times as long as steps.
template <typename Step>
void InPauses(const std::atomic<bool>& stop, const Step& step) {
  constexpr Clock::duration kLongest = std::chrono::milliseconds(50);
  for (bool more = true; more && !stop.load(std::memory_order_relaxed);) {
    const Clock::time_point began = Clock::now();
    more = step();
    std::this_thread::sleep_for(std::min(4 * (Clock::now() - began), kLongest));
  }
}

// Whether blocks of weights of this process (HostBuffer, base/memory.h) have small pages because the system gave huge
// ones slowly, as a virtual machine does that has to get them from its host: so a program starts soon.
bool HasSlowHugePages();

// Puts small pages of a HostBuffer from *at on together to a huge one, in place, and moves *at on; other threads may
// read and write it meanwhile. False: none is left before `end`, or the system cannot.
bool UseHugePage(uint8_t** at, const uint8_t* end);

}  // namespace weir
