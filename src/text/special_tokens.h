// SPDX-License-Identifier: Apache-2.0
// Finds special tokens in a text. Where several begin at one place the longest wins, and the leftmost match is taken
// first, as in the tokenizers the models were trained with.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace weir {

// Looks up string keys by view, without a copy.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

class SpecialTokens {
 public:
  struct Match {
    size_t pos = std::string_view::npos;  // npos: none
    size_t bytes = 0;
    int32_t id = -1;
  };

  // Empty texts are ignored. `skip_spaces_after`: white space after a match belongs to it (Phi-3's tokens).
  void Add(std::string_view text, int32_t id, bool skip_spaces_after);

  // The first match that begins in [from, to) and ends at or before text.size().
  Match Find(std::string_view text, size_t from, size_t to) const;

  bool empty() const { return by_text_.empty(); }
  size_t max_bytes() const { return lengths_.empty() ? 0 : lengths_.front(); }
  bool SkipsSpacesAfter(int32_t id) const { return skips_.contains(id); }

 private:
  std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>> by_text_;
  std::vector<size_t> lengths_;          // distinct, longest first
  std::array<bool, 256> first_bytes_{};  // bytes that can begin a special token
  std::unordered_map<int32_t, bool> skips_;
};

}  // namespace weir
