// SPDX-License-Identifier: Apache-2.0
// Formatted text to a stream of the C library. Unlike fmt::print() it does not throw when the stream refuses: the
// caller asks FlushOutput(), or std::ferror(), when it matters.
#pragma once

#include <fmt/core.h>

#include <cstdio>

namespace weir::app {

template <typename... Args>
void Print(std::FILE* out, fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::vformat(format, fmt::make_format_args(args...));
  std::fwrite(text.data(), 1, text.size(), out);
}

}  // namespace weir::app
