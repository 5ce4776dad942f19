// SPDX-License-Identifier: Apache-2.0
#include "serve/reply_shape.h"

#include <fmt/core.h>

namespace weir {

std::string ReplyShape::Waiting(int64_t n_read, int64_t n_prompt) {
  if (n_read == n_prompt) return ": waiting\n\n";
  return fmt::format(": reading {}/{} tokens\n\n", n_read, n_prompt);
}

std::string EventText(const Json& data, std::string_view name) {
  std::string out;
  if (!name.empty()) out = fmt::format("event: {}\n", name);
  return out + "data: " + JsonText(data) + "\n\n";
}

}  // namespace weir
