// SPDX-License-Identifier: Apache-2.0
// The monotonic clock for durations and deadlines.
#pragma once

#include <chrono>

namespace weir {

using Clock = std::chrono::steady_clock;

inline double Seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }
inline double Milliseconds(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }
inline double SecondsSince(Clock::time_point start) { return Seconds(Clock::now() - start); }
inline double MillisecondsSince(Clock::time_point start) { return Milliseconds(Clock::now() - start); }

}  // namespace weir
