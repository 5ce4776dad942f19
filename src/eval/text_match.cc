// SPDX-License-Identifier: Apache-2.0
#include "eval/text_match.h"

#include <algorithm>
#include <charconv>

#include "base/ascii.h"

namespace weir {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::optional<int64_t> Parse(std::string_view digits) {
  if (digits.empty() || digits.size() > 18) return std::nullopt;
  int64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

}  // namespace

std::optional<int64_t> FirstInteger(std::string_view text) {
  const auto first = std::find_if(text.begin(), text.end(), IsDigit);
  return Parse({first, std::find_if_not(first, text.end(), IsDigit)});
}

std::optional<int64_t> LastInteger(std::string_view text) {
  const auto last = std::find_if(text.rbegin(), text.rend(), IsDigit);
  return Parse({std::find_if_not(last, text.rend(), IsDigit).base(), last.base()});
}

bool ContainsAll(std::string_view text, std::span<const std::string> parts) {
  const std::string lower = AsciiLower(text);
  return std::all_of(parts.begin(), parts.end(),
                     [&](const std::string& part) { return lower.find(AsciiLower(part)) != std::string::npos; });
}

}  // namespace weir
