// SPDX-License-Identifier: Apache-2.0
// Characters as Python's str sees them: counted in code points, with Unicode's spaces and simple case mapping.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "text/jinja/text.h"

namespace weir::jinja {

// What str.strip() and str.split() treat as space.
bool IsSpace(char32_t c);
std::string_view StripSpace(std::string_view text, bool left, bool right);

// Number of code points; a broken byte counts as one.
size_t CountChars(std::string_view text);
// Byte position of the n-th code point; text.size() when there are fewer.
size_t CharPos(std::string_view text, size_t n);
// Bytes of the character at `pos`. REQUIRES: pos < text.size().
size_t CharBytes(std::string_view text, size_t pos);

// One character to one character: Latin, Greek, Cyrillic, Armenian and full-width letters. What Unicode maps to several
// characters stays, except that sharp s becomes SS as in Python.
char32_t ToUpper(char32_t c);
char32_t ToLower(char32_t c);
bool IsUpper(char32_t c);
bool IsLower(char32_t c);
bool IsDigit(char32_t c);   // ASCII
bool IsLetter(char32_t c);  // ASCII, and any character beyond that is not a space, a sign or punctuation of Latin-1

enum class Case { kUpper, kLower, kSwap, kCapital, kTitle };
// str.upper(), lower(), swapcase(), capitalize(), title(). Keeps the origin of each character.
Text WithCase(const Text& text, Case how);

// For an error's text: at most 500 bytes, whole characters, and none that would end a line or steer a terminal.
std::string OneLine(std::string_view text);

// repr() of a string, with its quotes.
Text Quoted(const Text& text);

}  // namespace weir::jinja
