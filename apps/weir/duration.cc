// SPDX-License-Identifier: Apache-2.0
#include "duration.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdlib>

namespace weir::app {

Result<int64_t> ParseDuration(const char* flag, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  const double scale = unit == "ms"                  ? 1
                       : unit.empty() || unit == "s" ? 1e3
                       : unit == "m"                 ? 60e3
                       : unit == "h"                 ? 3600e3
                                                     : 0;
  if (end == text.c_str() || !std::isfinite(value) || value * scale < 1 || value * scale > 1e12) {
    return InvalidArgument("{} '{}' is not a duration; write for example 500ms, 30s, 2m or 1h", flag, text);
  }
  return static_cast<int64_t>(std::llround(value * scale));
}

std::string TimeText(int64_t ms) {
  return fmt::format("{}:{:02}:{:02}.{}", ms / 3600000, ms / 60000 % 60, ms / 1000 % 60, ms / 100 % 10);
}

}  // namespace weir::app
