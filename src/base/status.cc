// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <fmt/core.h>

namespace weir {
namespace {

// Text quoted from a file or a request may contain line feeds and other control characters.
void OneLine(std::string* message) {
  for (char& c : *message) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = c == '\n' ? ' ' : '?';
  }
}

}  // namespace

Status FormatStatus(StatusCode code, fmt::string_view format, fmt::format_args args) {
  std::string message = fmt::vformat(format, args);
  OneLine(&message);
  return Status(code, std::move(message));
}

}  // namespace weir
