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
  // The longest run of equal tokens that is told from longer ones.
  static constexpr int kMostSame = 8;

  static int64_t Bytes() { return kHistory * static_cast<int64_t>(sizeof(int32_t)); }
  void Prepare() { history_.reserve(static_cast<size_t>(kHistory)); }

  void Clear() { history_.clear(); }
  // Tokens that were read; a negative one is a row that is no token, beyond which nothing is the same.
  void Push(std::span<const int32_t> tokens);

  // What the newest of equally long runs say of the next token.
  enum class Votes : uint8_t {
    kOne,    // there is one
    kAgree,  // all the same
    kMixed,
  };
  struct Guess {
    std::span<const int32_t> next;  // valid until the next Push()
    int n_same = 0;                 // newest tokens that are the same before `next`, 1 to kMostSame
    Votes votes = Votes::kOne;
  };
  // Up to `most` tokens that followed the longest run of the newest tokens; of equally long ones the latest whose next
  // token followed most often. Empty if there is none.
  Guess Find(int64_t most) const;

 private:
  std::vector<int32_t> history_;
};

}  // namespace weir
