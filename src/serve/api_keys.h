// SPDX-License-Identifier: Apache-2.0
// API keys of requests: `Authorization: Bearer KEY`.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weir {

class ApiKeys {
 public:
  // An empty list: no key is required.
  explicit ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {}

  bool any() const { return !keys_.empty(); }
  // Whether an `Authorization` header holds one of the keys. Constant-time comparison: the time depends on the length
  // of the header, not on how much of a key matches or which key it is.
  bool Accept(std::string_view authorization) const;

 private:
  const std::vector<std::string> keys_;
};

}  // namespace weir
