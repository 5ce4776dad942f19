// SPDX-License-Identifier: Apache-2.0
#include "serve/origin.h"

#include <gtest/gtest.h>

#include <string>

namespace weir {
namespace {

TEST(OriginRules, WithoutAKeyPagesAreTheServersOwn) {
  const OriginRules rules({}, false, "0.0.0.0");
  EXPECT_EQ(rules.Check("", "any.example:8080").http, 0);
  EXPECT_EQ(rules.Check("http://any.example:8080", "any.example:8080").http, 0);
  for (const char* origin : {"http://any.example", "http://evil.example:8080", "null", "any.example:8080", "http://"}) {
    EXPECT_EQ(rules.Check(origin, "any.example:8080").http, 403) << origin;
  }
  EXPECT_EQ(rules.Check("http://", "").http, 403);
}

// DNS rebinding: a foreign name resolves to this machine for a moment, so that the page's origin and Host agree.
TEST(OriginRules, ALocalServerAnswersToNoOtherName) {
  for (const char* address : {"127.0.0.1", "localhost", "::1"}) {
    const OriginRules rules({}, false, address);
    for (const char* host : {"", "127.0.0.1:8080", "127.1.2.3", "localhost", "localhost:1", "[::1]:8080", "[::1]",
                             "weir.localhost:8080"}) {
      EXPECT_EQ(rules.Check("", host).http, 0) << host;
    }
    for (const char* host : {"evil.example:8080", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80",
                             "evillocalhost", "[::2]:8080", "192.168.0.1:8080"}) {
      EXPECT_EQ(rules.Check("", host).http, 403) << host;
      EXPECT_EQ(rules.Check(std::string("http://") + host, host).http, 403) << host;
    }
  }
  EXPECT_EQ(OriginRules({}, true, "127.0.0.1").Check("http://evil.example", "evil.example").http, 0);
}

TEST(OriginRules, OthersAreAllowedByName) {
  const OriginRules some({"https://app.example"}, false, "127.0.0.1"), all({"*"}, true, "127.0.0.1"),
      none({}, true, "");
  EXPECT_EQ(some.Check("https://app.example", "127.0.0.1:8080").http, 0);
  EXPECT_EQ(some.Check("https://app.example.evil", "127.0.0.1:8080").http, 403);
  EXPECT_TRUE(some.Allows("https://app.example"));
  EXPECT_FALSE(some.Allows("http://app.example"));
  EXPECT_FALSE(some.Allows(""));
  EXPECT_TRUE(all.Allows("null"));
  EXPECT_FALSE(none.Allows("https://app.example"));
}

TEST(OriginRules, WhatAnOriginIs) {
  for (const char* text : {"*", "https://app.example", "http://localhost:3000", "chrome-extension://abc"}) {
    EXPECT_TRUE(IsOrigin(text)) << text;
  }
  for (const char* text : {"", "app.example", "https://", "https://app.example/", "https://app.example/x", "a b://c d",
                           "https://a\r\nX: y"}) {
    EXPECT_FALSE(IsOrigin(text)) << text;
  }
}

}  // namespace
}  // namespace weir
