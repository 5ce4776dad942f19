// SPDX-License-Identifier: Apache-2.0
#include "chat/stop_text.h"

#include <algorithm>

namespace weir {

StopText::StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

bool StopText::Push(std::string_view piece, std::string* out) {
  held_ += piece;
  // Finds the one that ends first, as if the text came character by character: the output must not depend on how it was
  // split.
  size_t begin = std::string::npos, end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos || at + stop.size() > end || (at + stop.size() == end && at > begin)) continue;
    begin = at;
    end = at + stop.size();
  }
  if (begin != std::string::npos) {
    out->append(held_, 0, begin);
    held_.clear();
    return true;
  }
  size_t n_held = 0;  // longest suffix of the text that is a prefix of a stop string
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(held_.size(), stop.size() - 1); n > n_held; --n) {
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) n_held = n;
    }
  }
  out->append(held_, 0, held_.size() - n_held);
  held_.erase(0, held_.size() - n_held);
  return false;
}

void StopText::Finish(std::string* out) {
  *out += held_;
  held_.clear();
}

}  // namespace weir
