// SPDX-License-Identifier: Apache-2.0
#include "eval/haystack.h"

#include <algorithm>
#include <span>

#include "base/ascii.h"
#include "eval/words.h"

namespace weir {
namespace {

constexpr size_t kMaxSentenceBytes = 600;

// The byte after the sentence that begins at `at`, including its white space.
size_t SentenceEnd(std::string_view text, size_t at) {
  const size_t limit = std::min(text.size(), at + kMaxSentenceBytes);
  size_t end = at;
  while (end < limit) {
    const char c = text[end++];
    if ((c == '.' || c == '?' || c == '!') && end < text.size() && IsAsciiSpace(text[end])) {
      while (end < text.size() && IsAsciiSpace(text[end])) ++end;
      return end;
    }
  }
  if (end == text.size()) return end;
  // Too long for a sentence: cut at a space, or else between two characters.
  size_t cut = end;
  while (cut > at && !IsAsciiSpace(text[cut - 1])) --cut;
  if (cut > at) return cut;
  while (end > at + 1 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return end;
}

}  // namespace

Haystack Haystack::Prose(uint64_t seed) { return Haystack({}, seed); }

Haystack Haystack::Of(std::string_view text, uint64_t start) {
  Haystack out(text, start);
  if (text.empty() || start % text.size() == 0) return out;
  out.at_ = start % text.size();
  while (out.at_ < text.size() && (static_cast<unsigned char>(text[out.at_]) & 0xc0) == 0x80) ++out.at_;
  out.at_ = SentenceEnd(text, out.at_);
  if (out.at_ >= text.size()) out.at_ = 0;
  return out;
}

std::string Haystack::Next() {
  if (!text_.empty()) {
    const size_t begin = at_, end = SentenceEnd(text_, begin);
    at_ = end < text_.size() ? end : 0;
    std::string out(text_.substr(begin, end - begin));
    if (at_ == 0 && !IsAsciiSpace(out.back())) out += "\n\n";  // the text restarts
    return out;
  }
  const auto pick = [&](std::span<const std::string_view> words) {
    return std::string(words[rng_.Below(words.size())]);
  };
  static constexpr std::string_view kVerbs[] = {"admired", "carried", "described", "drew",    "examined", "followed",
                                                "found",   "kept",    "mended",    "moved",   "noticed",  "passed",
                                                "praised", "put",     "sold",      "touched", "wanted",   "watched"};
  static constexpr std::string_view kPlaces[] = {"behind the house",  "by the river",    "in the evening",
                                                 "near the old road", "on the hill",     "under the trees",
                                                 "at the market",     "before the rain", "across the valley",
                                                 "after supper",      "in the meadow",   "with great care"};
  std::string out = "The " + pick(People()) + " " + pick(kVerbs) + " the " + pick(Adjectives()) + " " + pick(Nouns());
  switch (rng_.Below(4)) {
    case 0:
      out += " " + pick(kPlaces);
      break;
    case 1:
      out += " and the " + pick(Nouns()) + " " + pick(kPlaces);
      break;
    case 2:
      out += ", and the " + pick(People()) + " " + pick(kVerbs) + " it " + pick(kPlaces);
      break;
    default:
      break;
  }
  return out + (rng_.Below(8) == 0 ? ".\n" : ". ");
}

std::string Haystack::NextBytes(int64_t n_bytes) {
  std::string out;
  while (static_cast<int64_t>(out.size()) < n_bytes) out += Next();
  return out;
}

}  // namespace weir
