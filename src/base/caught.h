// SPDX-License-Identifier: Apache-2.0
// Where a thread's work must not end the process. Our code does not throw, but memory may run out anywhere, and the
// libraries say so by std::bad_alloc.
#pragma once

#include <chrono>
#include <exception>
#include <new>
#include <thread>

#include "base/status.h"

namespace weir {

// Short enough to be stored without memory.
inline Status OutOfMemory() { return Status(StatusCode::kInternal, "no memory left"); }

// What fn() returns, a Status; or the error that it threw.
template <typename Fn>
Status Caught(const Fn& fn) {
  try {
    return fn();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  } catch (const std::exception& error) {
    try {
      return Internal("{}", error.what());
    } catch (const std::exception&) {
      return OutOfMemory();
    }
  }
}

// Whether fn() ran to its end.
template <typename Fn>
bool Tried(const Fn& fn) {
  return Caught([&] {
           fn();
           return Status();
         })
      .ok();
}

// Runs what must be done, such as to tell one who waits: again and again until there is memory for it. fn() may have
// begun before.
template <typename Fn>
void TryUntilDone(const Fn& fn) {
  while (!Tried(fn)) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace weir
