// SPDX-License-Identifier: Apache-2.0
#include "serve/api_keys.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

TEST(ApiKeys, AcceptsAnyOfThemAndNothingElse) {
  const ApiKeys keys({"first", "the second"});
  EXPECT_TRUE(keys.any());
  EXPECT_TRUE(keys.Accept("Bearer first"));
  EXPECT_TRUE(keys.Accept("Bearer the second"));
  for (const char* wrong : {"", "first", "Bearer ", "Bearer firs", "Bearer firstfirst", "Bearer first ", "bearer first",
                            "Bearer  first", "Basic first", "Bearer second"}) {
    EXPECT_FALSE(keys.Accept(wrong)) << wrong;
  }
}

TEST(ApiKeys, NoneAcceptNothing) {
  const ApiKeys none({});
  EXPECT_FALSE(none.any());
  EXPECT_FALSE(none.Accept("Bearer "));
}

}  // namespace
}  // namespace weir
