// SPDX-License-Identifier: Apache-2.0
// std::from_chars of floating-point numbers, for scripts/fuzz-memory: LLVM's C++ library of Debian 12 does not have
// them.
#pragma once
#if __cplusplus >= 202002L  // not where CMake tries the compiler

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <string>
#include <type_traits>

namespace std {

template <class T, class = enable_if_t<is_floating_point_v<T>>>
from_chars_result from_chars(const char* first, const char* last, T& value, chars_format = chars_format::general) {
  const string text(first, last);
  const char head = text.empty() ? ' ' : text[text[0] == '-' && text.size() > 1 ? 1 : 0];
  if (!((head >= '0' && head <= '9') || head == '.')) return {first, errc::invalid_argument};
  char* end = nullptr;
  errno = 0;
  T read{};
  if constexpr (is_same_v<T, float>) {
    read = strtof(text.c_str(), &end);
  } else {
    read = strtod(text.c_str(), &end);
  }
  if (end == text.c_str()) return {first, errc::invalid_argument};
  const from_chars_result result{first + (end - text.c_str()), errno == ERANGE ? errc::result_out_of_range : errc{}};
  if (result.ec == errc{}) value = read;
  return result;
}

}  // namespace std

#endif
