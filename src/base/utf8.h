// SPDX-License-Identifier: Apache-2.0
// UTF-8 from untrusted bytes: decoding, validation and repair. All code behind these functions may assume valid text.
//
// Invalid input follows the Unicode recommendation of "maximal subparts" (Unicode 15, section 3.9, table 3-8): a broken
// character counts as one replacement, however many of its bytes are present; overlong forms, surrogates and values
// above U+10FFFF are broken from their first byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weir {

// The character at one byte position.
struct Utf8Char {
  char32_t cp = 0xFFFD;  // the character; U+FFFD when invalid
  int bytes = 1;         // bytes it takes: 1 to 4, or the length of the broken part (1 to 3)
  bool valid = false;
  bool truncated = false;  // invalid only because the text ends: more bytes could complete it
};

// REQUIRES: pos < text.size().
Utf8Char DecodeUtf8(std::string_view text, size_t pos);

// Length in bytes of a character, from its first byte. REQUIRES: the text is valid and `first` starts a character.
inline int Utf8Bytes(char first) {
  const auto b = static_cast<uint8_t>(first);
  return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

// Appends the UTF-8 form of `cp`; surrogates and values above U+10FFFF become U+FFFD.
void AppendUtf8(char32_t cp, std::string* out);

// Number of bytes at the start of `text` that are valid UTF-8; text.size() when all of it is.
size_t ValidUtf8Prefix(std::string_view text);

// The text with every broken part replaced by U+FFFD. `n_replaced` (may be null) is increased by the number of
// replacements, so that a program can report them.
std::string SanitizeUtf8(std::string_view text, int64_t* n_replaced);

}  // namespace weir
