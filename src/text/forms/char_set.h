// SPDX-License-Identifier: Apache-2.0
// Sets of characters as ranges of code points, and the bytes of UTF-8 that spell them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace weir::forms {

struct CharRange {
  char32_t lo = 0, hi = 0;  // both included
  friend bool operator==(const CharRange&, const CharRange&) = default;
  friend auto operator<=>(const CharRange&, const CharRange&) = default;
};

// Sorted, disjoint and not adjacent, without surrogates, up to U+10FFFF: what Clean() returns.
using CharSet = std::vector<CharRange>;

inline constexpr char32_t kMaxChar = 0x10FFFF;

CharSet Clean(CharSet ranges);
CharSet AllBut(const CharSet& set);
CharSet AllChars();
CharSet Both(const CharSet& a, const CharSet& b);
CharSet Either(const CharSet& a, const CharSet& b);

// One to four ranges of bytes; every sequence of one byte from each is a character of the range that was split.
struct ByteSequence {
  std::array<uint8_t, 4> lo{}, hi{};
  int n = 0;
};
// REQUIRES: no surrogate in the range.
std::vector<ByteSequence> SplitUtf8(CharRange range);

}  // namespace weir::forms
