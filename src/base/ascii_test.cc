// SPDX-License-Identifier: Apache-2.0
#include "base/ascii.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

TEST(Ascii, OnlyItsOwnLetters) {
  std::string spaces, digits, lowered;
  for (int i = 0; i < 256; ++i) {
    const char c = static_cast<char>(i);
    if (IsAsciiSpace(c)) spaces += c;
    if (IsAsciiDigit(c)) digits += c;
    if (AsciiLower(c) != c) lowered += AsciiLower(c);
  }
  EXPECT_EQ(spaces, "\t\n\v\f\r ");
  EXPECT_EQ(digits, "0123456789");
  EXPECT_EQ(lowered, "abcdefghijklmnopqrstuvwxyz");  // bytes of UTF-8 stay as they are
  EXPECT_EQ(AsciiLower("Q4_K_M \xC3\x84"), "q4_k_m \xC3\x84");
}

}  // namespace
}  // namespace weir
