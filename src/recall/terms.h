// SPDX-License-Identifier: Apache-2.0
// Words as a search compares them: case folded, plural and possessive endings removed, hashed.
//
// Languages without spaces (Chinese, Japanese) give every character and every pair of neighbours. A number gives itself
// and its pair with the word before it: "clip 5" is a name, and another 5 is not.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace weir {

using Term = uint32_t;  // a hash: two words may share one, which costs a search a little precision

// Calls `each` with every word and pair of `text`, in order. REQUIRES: valid UTF-8.
void ForEachTerm(std::string_view text, const std::function<void(Term)>& each);

// The distinct words that a question searches by, at most kMaxTerms, in order: without words that say nothing ("what",
// "the").
inline constexpr size_t kMaxTerms = 64;
std::vector<Term> QueryTerms(std::string_view question);

// Finds the index of a term among a few, fast enough for every word of a long text.
class TermTable {
 public:
  explicit TermTable(const std::vector<Term>& terms);
  // -1: not among them.
  int Find(Term term) const {
    for (size_t at = term % kSize; slots_[at] >= 0; at = (at + 1) % kSize) {
      if (keys_[at] == term) return slots_[at];
    }
    return -1;
  }

 private:
  static constexpr size_t kSize = 4 * kMaxTerms;
  Term keys_[kSize] = {};
  int8_t slots_[kSize];
};

// How many of a question's words another one's terms do not have; pairs, and the words of chat templates, not counted.
int CountNewWords(std::string_view question, const TermTable& asked);

}  // namespace weir
