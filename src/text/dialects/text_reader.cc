// SPDX-License-Identifier: Apache-2.0
#include "text/dialects/text_reader.h"

#include <algorithm>

namespace weir {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

}  // namespace

void TextReader::Push(std::string_view text) {
  text_ += text;
  while (Step(false)) {
    if (kept_.size() > kMaxHeldBytes) GiveUp();
  }
  if (kept_.size() > kMaxHeldBytes) GiveUp();
  text_.erase(0, at_);
  at_ = 0;
}

void TextReader::Finish() {
  while (Step(true)) {
  }
}

void TextReader::Take(size_t n) {
  if (trying_) kept_ += rest().substr(0, n);
  at_ += n;
}

void TextReader::SkipSpace() {
  size_t n = 0;
  const std::string_view text = rest();
  while (n < text.size() && IsBlank(text[n])) ++n;
  Take(n);
}

TextReader::Begins TextReader::At(std::string_view text, bool last) const {
  const std::string_view here = rest();
  if (here.starts_with(text)) return Begins::kYes;
  return !last && text.starts_with(here) ? Begins::kMaybe : Begins::kNo;
}

int TextReader::ScanTo(std::span<const std::string_view> markers, bool last, std::string* out, size_t most) {
  const std::string_view text = rest();
  size_t at = 0;
  int found = kNoMarker;
  for (; at < text.size(); ++at) {
    if (out->size() + at > most) {
      found = kTooLong;
      break;
    }
    bool may_grow = false;
    for (size_t i = 0; i < markers.size(); ++i) {
      if (markers[i][0] != text[at]) continue;
      const std::string_view here = text.substr(at, markers[i].size());
      if (!markers[i].starts_with(here)) continue;
      if (here.size() < markers[i].size()) {
        may_grow |= !last;
      } else if (found < 0 || markers[static_cast<size_t>(found)].size() < markers[i].size()) {
        found = static_cast<int>(i);
      }
    }
    if (may_grow) {  // perhaps into one that is longer than what was found
      found = kNoMarker;
      break;
    }
    if (found >= 0) break;
  }
  out->append(text.substr(0, at));
  Take(at + (found < 0 ? 0 : markers[static_cast<size_t>(found)].size()));
  return found;
}

void TextReader::Try(std::string_view marker) {
  kept_ = marker;
  trying_ = true;
}

void TextReader::Commit() {
  kept_.clear();
  trying_ = false;
}

void TextReader::GiveUp() {
  trying_ = false;
  sink_.Content(kept_);
  kept_.clear();
  Restart();
}

bool IsToolName(std::string_view text) {
  return !text.empty() && text.size() <= kMaxToolNameBytes && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.' || c == ':' || c == '/';
  });
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace weir
