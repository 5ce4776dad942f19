// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

// Field names come from untrusted input.
TEST(StatusTest, AMessageIsOneLine) {
  EXPECT_EQ(InvalidArgument("'{}' is not a known field", "a\nb\x01\x7F").message(), "'a b??' is not a known field");
  EXPECT_EQ(NotFound("{}", "\u00e9\u4e2d").message(), "\u00e9\u4e2d");
}

}  // namespace
}  // namespace weir
