// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

TEST(Utf8, EveryCharacterSurvives) {
  for (char32_t cp = 0; cp < 0x110000; ++cp) {
    if (cp >= 0xD800 && cp < 0xE000) continue;
    std::string text;
    AppendUtf8(cp, &text);
    const Utf8Char c = DecodeUtf8(text, 0);
    ASSERT_TRUE(c.valid) << static_cast<uint32_t>(cp);
    ASSERT_TRUE(c.cp == cp);
    ASSERT_EQ(c.bytes, static_cast<int>(text.size()));
    ASSERT_EQ(Utf8Bytes(text[0]), c.bytes);
    ASSERT_EQ(ValidUtf8Prefix(text), text.size());
  }
}

TEST(Utf8, WhatIsNoCharacterBecomesAReplacement) {
  for (const char32_t cp : {0xD800, 0xDFFF, 0x110000}) {
    std::string text;
    AppendUtf8(cp, &text);
    EXPECT_EQ(text, "\xEF\xBF\xBD");
  }
}

TEST(Utf8, RepairsMaximalSubparts) {
  const struct {
    const char* broken;
    const char* repaired;  // '?' stands for U+FFFD
    int n;
  } cases[] = {
      {"plain", "plain", 0},
      {"\xFF", "?", 1},
      {"a\x80z", "a?z", 1},
      {"\xC0\xAF", "??", 2},            // overlong
      {"\xE0\x80\xAF", "???", 3},       // overlong
      {"\xED\xA0\x80", "???", 3},       // surrogate
      {"\xF4\x90\x80\x80", "????", 4},  // above U+10FFFF
      {"\xE2\x82", "?", 1},             // truncated
      {"\xF0\x9F\xA6z", "?z", 1},       // interrupted
      {"\xE2\x82\xE2\x82\xAC", "?\xE2\x82\xAC", 1},
      {"01234567890123456789\xC3", "01234567890123456789?", 1},
  };
  for (const auto& c : cases) {
    std::string want;
    for (const char* p = c.repaired; *p; ++p) want += *p == '?' ? "\xEF\xBF\xBD" : std::string(1, *p);
    int64_t n = 10;
    EXPECT_EQ(SanitizeUtf8(c.broken, &n), want);
    EXPECT_EQ(n, 10 + c.n) << c.broken;
    EXPECT_EQ(SanitizeUtf8(c.broken, nullptr), want);
  }
  EXPECT_TRUE(DecodeUtf8("\xE2\x82", 0).truncated);
  EXPECT_FALSE(DecodeUtf8("\xE2\x82z", 0).truncated);
  EXPECT_FALSE(DecodeUtf8("\xFF", 0).truncated);
}

}  // namespace
}  // namespace weir
