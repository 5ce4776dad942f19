// SPDX-License-Identifier: Apache-2.0
#include "serve/session_id.h"

#include <sys/random.h>

#include <fmt/core.h>
#include <algorithm>
#include <cstdint>

namespace weir {
namespace {

constexpr size_t kMaxIdBytes = 100, kLeastChosenBytes = 18;

}  // namespace

Result<std::string> NewSessionId(const std::string& node) {
  uint8_t bytes[16];
  if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) return IoError("the system provides no random numbers");
  std::string id = node.empty() ? "s-" : "s-" + node + "-";
  for (const uint8_t byte : bytes) id += fmt::format("{:02x}", byte);
  return id;
}

bool IsSessionId(std::string_view id) {
  return id.size() <= kMaxIdBytes && id.starts_with("s-") && std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
         });
}

bool IsChosenSessionId(std::string_view id) { return IsSessionId(id) && id.size() >= kLeastChosenBytes; }

}  // namespace weir
