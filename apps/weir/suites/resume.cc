// SPDX-License-Identifier: Apache-2.0
#include "suites/resume.h"

#include <algorithm>

#include "common.h"

namespace weir::app {

std::string RowKey(const Json& row, std::span<const char* const> keys) {
  std::string out;
  // Only scalars: writing a deeply nested value from an untrusted file would need a deep stack.
  for (const char* key : keys) out += (row.contains(key) && row[key].is_primitive() ? row[key].dump() : "") + "\n";
  return out;
}

Result<std::set<std::string>> FinishedRows(const std::string& path, std::span<const char* const> keys) {
  constexpr int64_t kMaxFileBytes = int64_t{1} << 30;
  std::set<std::string> finished;
  if (path.empty()) return finished;
  WEIR_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxFileBytes));
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const Json row = Json::parse(text.begin() + static_cast<int64_t>(at), text.begin() + static_cast<int64_t>(end),
                                 nullptr, /*allow_exceptions=*/false);
    at = end + 1;
    if (!row.is_object() || !row.contains("complete")) continue;
    if (row["complete"] == true) finished.insert(RowKey(row, keys));
  }
  return finished;
}

}  // namespace weir::app
