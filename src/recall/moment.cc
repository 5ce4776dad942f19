// SPDX-License-Identifier: Apache-2.0
#include "recall/moment.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "base/ascii.h"

namespace weir {
namespace {

constexpr int64_t kSecond = 1000, kMinute = 60 * kSecond, kHour = 60 * kMinute;
constexpr int64_t kMost = 1'000'000;  // a larger number names no moment
constexpr int64_t kAround = 5 * kSecond;

// Words, numbers, clock times and percentages, in lower case.
std::vector<std::string> Split(std::string_view text) {
  std::vector<std::string> out(1);
  const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool digits = i > 0 && i + 1 < text.size() && std::isdigit(static_cast<unsigned char>(text[i - 1])) != 0 &&
                        std::isdigit(static_cast<unsigned char>(text[i + 1])) != 0;
    if (in_word(c) || (digits && (c == ':' || c == '.'))) {
      out.back().push_back(AsciiLower(c));
      continue;
    }
    if (!out.back().empty()) out.emplace_back();
    if (c == '%') {
      out.back() = "%";
      out.emplace_back();
    }
  }
  if (out.back().empty()) out.pop_back();
  return out;
}

std::optional<int64_t> NumberOf(std::string_view word) {
  constexpr std::string_view kWords[] = {"zero",  "one",   "two",  "three", "four",   "five",  "six",
                                         "seven", "eight", "nine", "ten",   "eleven", "twelve"};
  const auto at = std::ranges::find(kWords, word);
  if (at != std::end(kWords)) return at - std::begin(kWords);
  if (word == "a" || word == "an") return 1;
  if (word.empty() || word.size() > 7) return std::nullopt;
  int64_t n = 0;
  for (const char c : word) {
    if (c < '0' || c > '9') return std::nullopt;
    n = 10 * n + (c - '0');
  }
  return n <= kMost ? std::optional(n) : std::nullopt;
}

std::optional<int64_t> UnitOf(std::string_view word) {
  if (word.ends_with('s')) word.remove_suffix(1);
  if (word == "second" || word == "sec") return kSecond;
  if (word == "minute" || word == "min") return kMinute;
  if (word == "hour") return kHour;
  return std::nullopt;
}

// m:ss or h:mm:ss.
std::optional<int64_t> ClockOf(std::string_view word) {
  int64_t total = 0, n_parts = 0;
  while (true) {
    const size_t colon = word.find(':');
    const auto part = NumberOf(word.substr(0, colon));
    if (!part || word.empty() || std::isdigit(static_cast<unsigned char>(word[0])) == 0) return std::nullopt;
    if (n_parts > 0 && *part > 59) return std::nullopt;
    total = 60 * total + *part;
    ++n_parts;
    if (colon == std::string_view::npos) break;
    word.remove_prefix(colon + 1);
  }
  return n_parts == 2 || n_parts == 3 ? std::optional(total * kSecond) : std::nullopt;
}

Moment Around(int64_t t_ms) { return {true, std::max<int64_t>(0, t_ms - kAround), t_ms + kAround}; }

}  // namespace

std::optional<Moment> FindMoment(std::string_view question, int64_t now_ms) {
  const std::vector<std::string> words = Split(question);
  const auto word = [&](size_t i) { return i < words.size() ? std::string_view(words[i]) : std::string_view(); };
  const auto among = [&](std::string_view one, std::initializer_list<std::string_view> all) {
    return std::ranges::find(all, one) != all.end();
  };
  for (size_t i = 0; i < words.size(); ++i) {
    if (const auto clock = ClockOf(words[i])) return Around(*clock);
    const bool first = words[i] == "first", last = words[i] == "last" || words[i] == "past";
    if (first || last) {
      // "the first minute", "the last 30 seconds"
      const auto n = NumberOf(word(i + 1));
      if (const auto unit = UnitOf(word(n ? i + 2 : i + 1))) {
        const int64_t length = n.value_or(1) * *unit;
        return first ? Moment{true, 0, length} : Moment{true, std::max<int64_t>(0, now_ms - length), now_ms + 1};
      }
    }
    if (const auto n = NumberOf(words[i])) {
      if (word(i + 1) == "%" || word(i + 1) == "percent") {
        const int64_t at = std::min<int64_t>(*n, 100) * 10'000;
        return Moment{false, std::max<int64_t>(0, at - 10'000), at + 10'000};
      }
      if (const auto unit = UnitOf(word(i + 1))) {
        const int64_t length = *n * *unit;
        if (word(i + 2) == "ago") return Around(std::max<int64_t>(0, now_ms - length));
        if (among(word(i + 2), {"in", "into"})) return Around(length);
        if (i > 0 && among(word(i - 1), {"after", "at"})) return Around(length);
      }
    }
    // "minute 3", "second 20"
    if (const auto unit = UnitOf(words[i]); unit && !words[i].ends_with('s')) {
      if (const auto n = NumberOf(word(i + 1)); n && std::isdigit(static_cast<unsigned char>(word(i + 1)[0])) != 0) {
        return Moment{true, *n * *unit, (*n + 1) * *unit};
      }
    }
    if (i > 0 && words[i - 1] == "the") {
      if (among(words[i], {"beginning", "start", "outset"})) return Moment{false, 0, 30'000};
      if (words[i] == "middle") return Moment{false, 485'000, 515'000};
      if (words[i] == "end" && word(i + 1) != "of") return Moment{false, 970'000, 1'000'001};
    }
  }
  return std::nullopt;
}

}  // namespace weir
