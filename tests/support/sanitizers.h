// SPDX-License-Identifier: Apache-2.0
// What sanitizers change about a process.
#pragma once

namespace weir::testing {

// They keep what was freed for a while, and records of their own: how much memory a process has says nothing.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kOwnMemory = false;
#else
inline constexpr bool kOwnMemory = true;
#endif

}  // namespace weir::testing
