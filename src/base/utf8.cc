// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include <cstring>

namespace weir {

Utf8Char DecodeUtf8(std::string_view text, size_t pos) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(pos);
  if (first < 0x80) return {first, 1, true, false};
  // The second byte's range excludes overlong forms, surrogates and values past U+10FFFF.
  int length = 0;
  uint8_t low = 0x80, high = 0xBF;
  char32_t cp = 0;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2, cp = first & 0x1F;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3, cp = first & 0x0F;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4, cp = first & 0x07;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return {};
  }
  for (int i = 1; i < length; ++i) {
    if (pos + i >= text.size()) return {0xFFFD, i, false, true};
    const uint8_t b = byte(pos + i);
    if (b < low || b > high) return {0xFFFD, i, false, false};
    low = 0x80, high = 0xBF;
    cp = cp << 6 | (b & 0x3F);
  }
  return {cp, length, true, false};
}

void AppendUtf8(char32_t cp, std::string* out) {
  if (cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF)) cp = 0xFFFD;
  if (cp < 0x80) {
    out->push_back(static_cast<char>(cp));
  } else if (cp < 0x800) {
    out->push_back(static_cast<char>(0xC0 | cp >> 6));
    out->push_back(static_cast<char>(0x80 | (cp & 0x3F)));
  } else if (cp < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | cp >> 12));
    out->push_back(static_cast<char>(0x80 | (cp >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (cp & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xF0 | cp >> 18));
    out->push_back(static_cast<char>(0x80 | (cp >> 12 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (cp >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (cp & 0x3F)));
  }
}

size_t ValidUtf8Prefix(std::string_view text) {
  size_t pos = 0;
  while (pos < text.size()) {
    // Plain ASCII, the bulk of most texts, eight bytes at a time.
    uint64_t word;
    while (pos + 8 <= text.size() && (std::memcpy(&word, text.data() + pos, 8), !(word & 0x8080808080808080u)))
      pos += 8;
    if (pos == text.size()) break;
    const Utf8Char c = DecodeUtf8(text, pos);
    if (!c.valid) return pos;
    pos += c.bytes;
  }
  return pos;
}

std::string SanitizeUtf8(std::string_view text, int64_t* n_replaced) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t good = ValidUtf8Prefix(text);
    out.append(text.substr(0, good));
    if (good == text.size()) break;
    const Utf8Char bad = DecodeUtf8(text, good);
    AppendUtf8(0xFFFD, &out);
    if (n_replaced) ++*n_replaced;
    text.remove_prefix(good + bad.bytes);
  }
  return out;
}

}  // namespace weir
