// SPDX-License-Identifier: Apache-2.0
// Signatures of webhooks, as https://www.standardwebhooks.com has them, so that receivers can check them with a
// library.
//
//   webhook-id: ID   webhook-timestamp: SECONDS   webhook-signature: v1,BASE64(HMAC-SHA256(key, "ID.SECONDS.BODY"))
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace weir {

class WebhookKey {
 public:
  static constexpr size_t kLeastBytes = 16, kMostBytes = 256;

  // A secret as an operator writes it: "whsec_" and base64, or any other text, whose bytes are the key; white space
  // around it is no part of it. kInvalidArgument for a key that is too short or too long, or broken base64; its message
  // does not show the secret. kUnsupported where the HTTP library has no OpenSSL.
  static Result<WebhookKey> Parse(std::string_view secret);

  // The value of the header webhook-signature.
  std::string Sign(std::string_view id, int64_t unix_s, std::string_view body) const;

 private:
  explicit WebhookKey(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string bytes_;
};

}  // namespace weir
