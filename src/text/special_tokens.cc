// SPDX-License-Identifier: Apache-2.0
#include "text/special_tokens.h"

#include <algorithm>
#include <functional>

namespace weir {

void SpecialTokens::Add(std::string_view text, int32_t id, bool skip_spaces_after) {
  if (text.empty()) return;
  by_text_.insert_or_assign(std::string(text), id);
  if (std::find(lengths_.begin(), lengths_.end(), text.size()) == lengths_.end()) {
    lengths_.insert(std::upper_bound(lengths_.begin(), lengths_.end(), text.size(), std::greater<>()), text.size());
  }
  first_bytes_[static_cast<uint8_t>(text[0])] = true;
  if (skip_spaces_after) skips_[id] = true;
}

SpecialTokens::Match SpecialTokens::Find(std::string_view text, size_t from, size_t to) const {
  if (empty()) return {};
  for (size_t pos = from; pos < to; ++pos) {
    if (!first_bytes_[static_cast<uint8_t>(text[pos])]) continue;
    for (const size_t n : lengths_) {
      if (n > text.size() - pos) continue;
      const auto it = by_text_.find(text.substr(pos, n));
      if (it != by_text_.end()) return {pos, n, it->second};
    }
  }
  return {};
}

}  // namespace weir
