// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/text.h"

#include <algorithm>

namespace weir::jinja {

void Text::Append(std::string_view bytes, bool given) {
  if (bytes.empty()) return;
  if (bytes_.empty()) {
    given_ = given;
  } else if (!runs_.empty()) {
    if (runs_.back().given == given) {
      runs_.back().end += bytes.size();
    } else {
      runs_.push_back({bytes_.size() + bytes.size(), given});
    }
  } else if (given != given_) {
    runs_ = {{bytes_.size(), given_}, {bytes_.size() + bytes.size(), given}};
    given_ = false;
  }
  bytes_ += bytes;
}

void Text::Append(const Text& other) { AppendPart(other, 0, other.size()); }

void Text::AppendPart(const Text& other, size_t begin, size_t end) {
  const std::string_view bytes = other.view();
  if (other.runs_.empty()) return Append(bytes.substr(begin, end - begin), other.given_);
  for (size_t run = other.RunOf(begin); begin < end; ++run) {
    const size_t stop = std::min(end, other.runs_[run].end);
    Append(bytes.substr(begin, stop - begin), other.runs_[run].given);
    begin = stop;
  }
}

Text Text::Part(size_t begin, size_t end) const {
  Text out;
  out.AppendPart(*this, begin, end);
  return out;
}

size_t Text::RunOf(size_t pos) const {
  const auto it = std::upper_bound(runs_.begin(), runs_.end(), pos, [](size_t p, const Mark& m) { return p < m.end; });
  return static_cast<size_t>(it - runs_.begin());
}

bool Text::GivenAt(size_t pos) const {
  if (runs_.empty()) return given_;
  return runs_[std::min(RunOf(pos), runs_.size() - 1)].given;
}

std::vector<Text::Run> Text::Runs() const {
  std::vector<Run> out;
  if (runs_.empty()) {
    if (!bytes_.empty()) out.push_back({0, bytes_.size(), given_});
    return out;
  }
  size_t begin = 0;
  for (const Mark& mark : runs_) {
    out.push_back({begin, mark.end, mark.given});
    begin = mark.end;
  }
  return out;
}

}  // namespace weir::jinja
