// SPDX-License-Identifier: Apache-2.0
// Places of a stream to which something that cannot un-read goes back: for each of a fixed number of copies, how many
// tokens had been read when it was made. The copies are the owner's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace weir {

class Marks {
 public:
  Marks() = default;
  explicit Marks(int32_t n_copies) : at_(static_cast<size_t>(n_copies), 0) {}

  // The copy that is to be made of what has read n tokens, in place of the oldest; if `keep`, in place of the last one
  // that was kept, beside the others, where there are several. -1: none, there are no copies or one is of that place.
  int32_t Take(int64_t n, bool keep) {
    if (at_.empty() || n <= 0 || CopyOf(n) >= 0) return -1;
    // The first copy is the kept one's, unless it is the only one.
    const auto others = at_.size() > 1 ? at_.begin() + 1 : at_.begin();
    const auto mark = keep && others != at_.begin() ? at_.begin() : std::min_element(others, at_.end());
    *mark = n;
    return static_cast<int32_t>(mark - at_.begin());
  }
  // The largest place that is at most n, 0 if there is none.
  int64_t Before(int64_t n) const {
    int64_t best = 0;
    for (const int64_t mark : at_) {
      if (mark <= n) best = std::max(best, mark);
    }
    return best;
  }
  // The copy of a place, -1 if there is none. REQUIRES: n > 0.
  int32_t CopyOf(int64_t n) const {
    const auto mark = std::find(at_.begin(), at_.end(), n);
    return mark == at_.end() ? -1 : static_cast<int32_t>(mark - at_.begin());
  }
  void ForgetAfter(int64_t n) {
    for (int64_t& mark : at_) mark = mark > n ? 0 : mark;
  }
  void Clear() { ForgetAfter(0); }

 private:
  std::vector<int64_t> at_;  // [copies]: tokens read, 0: unused
};

}  // namespace weir
