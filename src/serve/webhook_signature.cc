// SPDX-License-Identifier: Apache-2.0
#include "serve/webhook_signature.h"

#include <fmt/core.h>
#ifdef CPPHTTPLIB_OPENSSL_SUPPORT
#include <openssl/evp.h>
#include <openssl/hmac.h>
#endif

#include <utility>

#include "base/base64.h"

namespace weir {
namespace {

constexpr std::string_view kEncoded = "whsec_";

#ifdef CPPHTTPLIB_OPENSSL_SUPPORT
constexpr bool kCanSign = true;
std::string HmacSha256(std::string_view key, std::string_view text) {
  unsigned char mac[EVP_MAX_MD_SIZE];
  unsigned int n = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
       text.size(), mac, &n);
  return {reinterpret_cast<const char*>(mac), n};
}
#else
constexpr bool kCanSign = false;
std::string HmacSha256(std::string_view, std::string_view) { return ""; }
#endif

}  // namespace

Result<WebhookKey> WebhookKey::Parse(std::string_view secret) {
  if (!kCanSign) return Unsupported("this build has no webhooks: it was made with an HTTP library without OpenSSL");
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = secret.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return InvalidArgument("the webhooks' secret is empty");
  const std::string_view text = secret.substr(first, secret.find_last_not_of(kSpace) + 1 - first);
  std::string bytes(text);
  // Bounded before it is decoded.
  if (text.size() <= 2 * kMostBytes && text.starts_with(kEncoded)) {
    auto decoded = DecodeBase64(text.substr(kEncoded.size()));
    if (!decoded.ok()) {
      return InvalidArgument("the webhooks' secret begins with {} and goes on with what is no base64", kEncoded);
    }
    bytes = *std::move(decoded);
  }
  if (bytes.size() < kLeastBytes || bytes.size() > kMostBytes) {
    return InvalidArgument("the webhooks' secret has {} bytes; {} to {} are possible", bytes.size(), kLeastBytes,
                           kMostBytes);
  }
  return WebhookKey(std::move(bytes));
}

std::string WebhookKey::Sign(std::string_view id, int64_t unix_s, std::string_view body) const {
  return "v1," + EncodeBase64(HmacSha256(bytes_, fmt::format("{}.{}.{}", id, unix_s, body)));
}

}  // namespace weir
