// SPDX-License-Identifier: Apache-2.0
// The moments that a question names: "at 2:10", "in the first minute", "five minutes ago", "at the beginning".
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace weir {

// A part of a stream, from `begin` to before `end`: of its time in ms, or of its length, in millionths.
struct Moment {
  bool of_time = true;
  int64_t begin = 0, end = 0;
};

// The first moment that the question names; `now_ms` is the stream's time. English, and clock times in any language:
// m:ss and h:mm:ss; a number of seconds, minutes or hours, first, last, ago, into or after; the beginning, the middle,
// the end; a percentage.
std::optional<Moment> FindMoment(std::string_view question, int64_t now_ms);

}  // namespace weir
