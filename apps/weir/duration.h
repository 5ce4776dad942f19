// SPDX-License-Identifier: Apache-2.0
// Times as flags give them and as lines show them.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace weir::app {

// "30s", "1.5m", "500ms", "2h"; seconds without a unit. kInvalidArgument names the flag.
Result<int64_t> ParseDuration(const char* flag, const std::string& text);
std::string TimeText(int64_t ms);  // "0:01:02.3"

}  // namespace weir::app
