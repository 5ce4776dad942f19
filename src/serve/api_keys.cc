// SPDX-License-Identifier: Apache-2.0
#include "serve/api_keys.h"

namespace weir {
namespace {

bool SameSecret(std::string_view given, std::string_view key) {
  unsigned char differ = given.size() != key.size();
  for (size_t i = 0; i < given.size(); ++i) {
    differ |= static_cast<unsigned char>(given[i] ^ key[key.empty() ? 0 : i % key.size()]);
  }
  return differ == 0;
}

}  // namespace

bool ApiKeys::Accept(std::string_view authorization) const {
  constexpr std::string_view kBearer = "Bearer ";
  if (!authorization.starts_with(kBearer)) return false;
  const std::string_view given = authorization.substr(kBearer.size());
  bool found = false;
  for (const std::string& key : keys_) found |= SameSecret(given, key);
  return found;
}

}  // namespace weir
