// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/letters.h"

#include <fmt/core.h>
#include <algorithm>
#include <iterator>
#include <span>

#include "base/utf8.h"
#include "text/jinja/letters_table.h"

namespace weir::jinja {
namespace {

char32_t MappedBy(std::span<const CaseRange> table, char32_t c) {
  const auto it =
      std::upper_bound(table.begin(), table.end(), c, [](char32_t x, const CaseRange& r) { return x < r.first; });
  // Ranges of alternating letters may overlap: look at the two before.
  for (auto at = it; at != table.begin() && it - at < 2;) {
    --at;
    if (c <= at->last && (c - at->first) % at->step == 0)
      return static_cast<char32_t>(static_cast<int64_t>(c) + at->to);
  }
  return c;
}

// Whether repr() writes the character as an escape.
bool IsHidden(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD || c == 0x1680 || (c >= 0x2000 && c <= 0x200F) ||
         (c >= 0x2028 && c <= 0x202F) || (c >= 0x205F && c <= 0x206F) || c == 0x3000 || (c >= 0xE000 && c <= 0xF8FF) ||
         c == 0xFEFF || c >= 0xE0000;
}

}  // namespace

bool IsSpace(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view StripSpace(std::string_view text, bool left, bool right) {
  const auto is_plain_space = [](char c) { return c == ' ' || (c >= 9 && c <= 13); };
  while (left && !text.empty()) {
    if (is_plain_space(text.front())) {
      text.remove_prefix(1);
      continue;
    }
    const Utf8Char c = DecodeUtf8(text, 0);
    if (!c.valid || !IsSpace(c.cp)) break;
    text.remove_prefix(static_cast<size_t>(c.bytes));
  }
  while (right && !text.empty()) {
    if (is_plain_space(text.back())) {
      text.remove_suffix(1);
      continue;
    }
    size_t at = text.size() - 1;
    while (at > 0 && text.size() - at < 4 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
    const Utf8Char c = DecodeUtf8(text, at);
    if (!c.valid || at + static_cast<size_t>(c.bytes) != text.size() || !IsSpace(c.cp)) break;
    text.remove_suffix(text.size() - at);
  }
  return text;
}

size_t CharBytes(std::string_view text, size_t pos) {
  return static_cast<uint8_t>(text[pos]) < 0x80 ? 1 : static_cast<size_t>(DecodeUtf8(text, pos).bytes);
}

size_t CountChars(std::string_view text) {
  size_t n = 0;
  for (size_t pos = 0; pos < text.size(); pos += CharBytes(text, pos)) ++n;
  return n;
}

size_t CharPos(std::string_view text, size_t n) {
  size_t pos = 0;
  for (; n > 0 && pos < text.size(); --n) pos += CharBytes(text, pos);
  return pos;
}

char32_t ToUpper(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
  return MappedBy(kToUpper, c);
}

char32_t ToLower(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  return MappedBy(kToLower, c);
}

bool IsUpper(char32_t c) { return ToLower(c) != c; }
bool IsLower(char32_t c) { return ToUpper(c) != c || c == 0xDF; }
bool IsDigit(char32_t c) { return c >= '0' && c <= '9'; }

bool IsLetter(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  if (c < 0x100) return c == 0xAA || c == 0xB5 || c == 0xBA || (c >= 0xC0 && c != 0xD7 && c != 0xF7);
  return !IsHidden(c) && !IsSpace(c) && !(c >= 0x2010 && c <= 0x2BFF) && !(c >= 0x3001 && c <= 0x3004) &&
         !(c >= 0x3008 && c <= 0x3020) && !(c >= 0xFF01 && c <= 0xFF20) && !(c >= 0x1F000 && c <= 0x1FAFF);
}

Text WithCase(const Text& text, Case how) {
  Text out;
  const std::string_view bytes = text.view();
  bool in_word = false;
  std::string one;
  for (size_t pos = 0; pos < bytes.size();) {
    const Utf8Char c = DecodeUtf8(bytes, pos);
    one.clear();
    if (!c.valid) {
      one = bytes.substr(pos, static_cast<size_t>(c.bytes));
    } else {
      bool up = how == Case::kUpper, down = how == Case::kLower;
      if (how == Case::kSwap) up = IsLower(c.cp), down = !up;
      if (how == Case::kCapital) up = pos == 0, down = !up;
      if (how == Case::kTitle) up = !in_word, down = in_word;
      in_word = IsUpper(c.cp) || IsLower(c.cp);
      if (c.cp == 0xDF && up) {
        one = how == Case::kCapital || how == Case::kTitle ? "Ss" : "SS";
      } else {
        AppendUtf8(up ? ToUpper(c.cp) : down ? ToLower(c.cp) : c.cp, &one);
      }
    }
    out.Append(one, text.GivenAt(pos));
    pos += static_cast<size_t>(c.bytes);
  }
  return out;
}

std::string OneLine(std::string_view text) {
  constexpr size_t kMaxBytes = 500;
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = DecodeUtf8(text, pos);
    const auto n = static_cast<size_t>(c.bytes);
    if (out.size() + n > kMaxBytes) break;
    if (!c.valid || IsHidden(c.cp)) {
      out += ' ';
    } else {
      out += text.substr(pos, n);
    }
    pos += n;
  }
  return out;
}

Text Quoted(const Text& text) {
  const std::string_view bytes = text.view();
  const char quote = bytes.find('\'') != bytes.npos && bytes.find('"') == bytes.npos ? '"' : '\'';
  Text out;
  out.Append(std::string(1, quote), false);
  std::string one;
  for (size_t pos = 0; pos < bytes.size();) {
    const Utf8Char c = DecodeUtf8(bytes, pos);
    one.clear();
    if (!c.valid) {
      AppendUtf8(0xFFFD, &one);
    } else if (c.cp == '\\' || c.cp == static_cast<char32_t>(quote)) {
      one = {'\\', static_cast<char>(c.cp)};
    } else if (c.cp == '\n') {
      one = "\\n";
    } else if (c.cp == '\r') {
      one = "\\r";
    } else if (c.cp == '\t') {
      one = "\\t";
    } else if (IsHidden(c.cp)) {
      const auto cp = static_cast<uint32_t>(c.cp);
      one = cp < 0x100     ? fmt::format("\\x{:02x}", cp)
            : cp < 0x10000 ? fmt::format("\\u{:04x}", cp)
                           : fmt::format("\\U{:08x}", cp);
    } else {
      AppendUtf8(c.cp, &one);
    }
    out.Append(one, text.GivenAt(pos));
    pos += static_cast<size_t>(c.bytes);
  }
  out.Append(std::string(1, quote), false);
  return out;
}

}  // namespace weir::jinja
