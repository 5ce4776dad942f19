// SPDX-License-Identifier: Apache-2.0
// Letters of ASCII, whatever the locale; other bytes are none of them.
#pragma once

#include <string>
#include <string_view>

namespace weir {

inline bool IsAsciiSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
inline bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }

inline char AsciiLower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
inline std::string AsciiLower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = AsciiLower(c);
  return out;
}

}  // namespace weir
