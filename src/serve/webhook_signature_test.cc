// SPDX-License-Identifier: Apache-2.0
#include "serve/webhook_signature.h"

#include <gtest/gtest.h>

#include <string>

namespace weir {
namespace {

// The example of the specification.
TEST(WebhookKey, SignsAsTheSpecificationDoes) {
  const auto key = WebhookKey::Parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n");
  ASSERT_TRUE(key.ok()) << key.status().message();
  EXPECT_EQ(key->Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, R"({"test": 2432232314})"),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

TEST(WebhookKey, EveryPartIsSigned) {
  const auto key = WebhookKey::Parse("a secret of an operator"), other = WebhookKey::Parse("a secret of an operatos");
  ASSERT_TRUE(key.ok() && other.ok());
  const std::string signature = key->Sign("s-1-1", 17, "{}");
  EXPECT_EQ(key->Sign("s-1-1", 17, "{}"), signature);
  EXPECT_NE(other->Sign("s-1-1", 17, "{}"), signature);
  EXPECT_NE(key->Sign("s-1-2", 17, "{}"), signature);
  EXPECT_NE(key->Sign("s-1-1", 18, "{}"), signature);
  EXPECT_NE(key->Sign("s-1-1", 17, "{} "), signature);
}

TEST(WebhookKey, SecretsThatAreNone) {
  for (const std::string& bad : {std::string(), std::string(" \n"), std::string("short"), std::string("whsec_"),
                                 std::string("whsec_MfKQ"), std::string("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa!!"),
                                 std::string(257, 'x'), "whsec_" + std::string(4000, 'A')}) {
    const auto key = WebhookKey::Parse(bad);
    EXPECT_EQ(key.status().code(), StatusCode::kInvalidArgument) << bad;
    if (bad.size() > 10) EXPECT_EQ(key.status().message().find(bad.substr(6)), std::string::npos);
  }
}

}  // namespace
}  // namespace weir
