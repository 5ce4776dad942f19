// SPDX-License-Identifier: Apache-2.0
// Going on with an interrupted run: which rows an earlier one finished (--resume).
#pragma once

#include <set>
#include <span>
#include <string>

#include "base/status.h"
#include "io/json.h"

namespace weir::app {

// What tells a row apart: the values of these keys, as far as it has them.
std::string RowKey(const Json& row, std::span<const char* const> keys);
// Keys of the rows of a file that say `complete`: true. None for an empty path. A half line, the last of a run that was
// killed, is passed over.
Result<std::set<std::string>> FinishedRows(const std::string& path, std::span<const char* const> keys);

}  // namespace weir::app
