// SPDX-License-Identifier: Apache-2.0
// Guesses what comes next in a stream: the newest tokens occurred before, and what followed them there may follow again
// (prompt lookup: Saxena 2023; Yang et al. 2023, "Inference with Reference"). Answers that copy, names and code guess
// well.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weir {

class Lookup {
 public:
  // The newest tokens of the stream that are searched, whether the pot still holds them or not: at least half as many.
  static constexpr int64_t kHistory = 1 << 15;
  // The longest run of equal tokens that is told from longer ones, and the shortest that counts.
  static constexpr int kMostSame = 8, kLeastSame = 2;

  static int64_t Bytes() { return kHistory * static_cast<int64_t>(sizeof(int32_t)); }
  void Prepare() { history_.reserve(static_cast<size_t>(kHistory)); }

  void Clear() { history_.clear(); }
  // Tokens that were read; a negative one is a row that is no token, beyond which nothing is the same.
  void Push(std::span<const int32_t> tokens);

  struct Guess {
    std::span<const int32_t> next;  // valid until the next Push()
    int n_same = 0;                 // newest tokens that are the same before `next`, kLeastSame to kMostSame
  };
  // Up to `most` tokens that followed the longest run of the newest tokens, the latest of equally long ones. Empty if
  // there is none.
  Guess Find(int64_t most) const;

 private:
  std::vector<int32_t> history_;
};

}  // namespace weir
