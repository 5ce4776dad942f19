// SPDX-License-Identifier: Apache-2.0
#include "recall/sentences.h"

#include <algorithm>
#include <array>

#include "base/ascii.h"

namespace weir {
namespace {

// Prose is broken at 60 columns and more; records of names and numbers are shorter.
constexpr size_t kShortLine = 56;

// Whether a short line ends at `at`. Of the first line of a piece of text nobody knows how long it was.
bool EndsShortLine(std::string_view text, size_t at, bool from_line) {
  size_t n = 0;
  while (n < at && text[at - n - 1] != '\n') {
    if (++n >= kShortLine) return false;
  }
  return n > 0 && (n < at || from_line);
}

// Titles that a name follows.
constexpr auto kTitles = std::to_array<std::string_view>(
    {"Mr", "Mrs", "Ms", "Dr", "St", "Prof", "Rev", "Capt", "Col", "Gen", "Lt", "Sgt", "Hon", "Messrs", "Mme", "Mlle"});

// Whether the full stop at `at` belongs to a title.
bool EndsTitle(std::string_view text, size_t at) {
  const auto is_letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); };
  size_t begin = at;
  while (begin > 0 && is_letter(text[begin - 1])) --begin;
  return std::ranges::find(kTitles, text.substr(begin, at - begin)) != kTitles.end();
}

}  // namespace

bool EndsSentence(std::string_view text, size_t at, bool from_line) {
  const char c = text[at];
  const bool mark = c == '.' || c == '!' || c == '?';
  if (c == '\n' && ((at + 1 < text.size() && text[at + 1] == '\n') || EndsShortLine(text, at, from_line))) return true;
  if (at >= 2) {
    const std::string_view wide = text.substr(at - 2, 3);  // full stop, exclamation and question mark of East Asia
    if (wide == "\u3002" || wide == "\uFF01" || wide == "\uFF1F") return true;
  }
  if (!mark || (c == '.' && EndsTitle(text, at))) return false;
  return at + 1 == text.size() || IsAsciiSpace(text[at + 1]) || text[at + 1] == '"';
}

size_t SentenceStart(std::string_view text, size_t at) {
  for (size_t i = at; i > 0; --i) {
    if (!EndsSentence(text, i - 1)) continue;
    size_t start = i;
    while (start < at && (IsAsciiSpace(text[start]) || text[start] == '"')) ++start;
    return start;
  }
  return at;
}

size_t SentenceEnd(std::string_view text, size_t at, bool from_line) {
  for (size_t i = at > 0 ? at - 1 : 0; i < text.size(); ++i) {
    if (EndsSentence(text, i, from_line)) return i + 1 < text.size() && text[i + 1] == '"' ? i + 2 : i + 1;
  }
  return at;
}

}  // namespace weir
