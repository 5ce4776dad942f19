// SPDX-License-Identifier: Apache-2.0
#include "eval/text_match.h"

#include <gtest/gtest.h>

#include <vector>

namespace weir {
namespace {

TEST(TextMatchTest, Integers) {
  EXPECT_EQ(FirstInteger(" 48213. Then 7"), 48213);
  EXPECT_EQ(LastInteger("line 12 holds <48213>."), 48213);
  EXPECT_EQ(FirstInteger("007"), 7);
  EXPECT_EQ(LastInteger("12"), 12);
  EXPECT_FALSE(FirstInteger("none").has_value());
  EXPECT_FALSE(LastInteger("").has_value());
  EXPECT_EQ(FirstInteger("123456789012345678"), 123456789012345678);
  EXPECT_FALSE(FirstInteger("1234567890123456789").has_value());
}

TEST(TextMatchTest, EveryPartWithoutCase) {
  const std::vector<std::string> parts = {"Figs", "goat cheese"};
  EXPECT_TRUE(ContainsAll("Goat Cheese and figs.", parts));
  EXPECT_FALSE(ContainsAll("goat and cheese and figs", parts));
  EXPECT_TRUE(ContainsAll("anything", {}));
}

}  // namespace
}  // namespace weir
