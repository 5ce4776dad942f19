// SPDX-License-Identifier: Apache-2.0
// The keys that requests bring: `Authorization: Bearer KEY`.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weir {

class ApiKeys {
 public:
  // None: no key is asked for.
  explicit ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {}

  bool any() const { return !keys_.empty(); }
  // Whether a header `Authorization` brings one of the keys. Constant-time comparison: how long it takes depends on
  // what was given and not on how much of a key it got right, nor on which key it is.
  bool Accept(std::string_view authorization) const;

 private:
  const std::vector<std::string> keys_;
};

}  // namespace weir
