// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/text_ops.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/letters.h"

namespace weir::jinja {
namespace {

bool IsLineEnd(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool HasChar(std::string_view chars, std::string_view one) {
  for (size_t pos = 0; pos < chars.size();) {
    const size_t n = CharBytes(chars, pos);
    if (chars.substr(pos, n) == one) return true;
    pos += n;
  }
  return false;
}

std::vector<Text> SplitAtSpace(const Text& text, int64_t n) {
  const std::string_view bytes = text.view();
  std::vector<Text> out;
  size_t pos = 0;
  while (true) {
    const std::string_view rest = StripSpace(bytes.substr(pos), true, false);
    pos = bytes.size() - rest.size();
    if (rest.empty()) return out;
    if (n >= 0 && static_cast<int64_t>(out.size()) == n) {
      out.push_back(text.Part(pos, pos + StripSpace(rest, false, true).size()));
      return out;
    }
    size_t end = pos;
    while (end < bytes.size()) {
      const Utf8Char c = DecodeUtf8(bytes, end);
      if (c.valid && IsSpace(c.cp)) break;
      end += static_cast<size_t>(c.bytes);
    }
    out.push_back(text.Part(pos, end));
    pos = end;
  }
}

std::vector<Text> SplitAtSpaceFromRight(const Text& text, int64_t n) {
  const std::string_view bytes = text.view();
  if (n < 0) return SplitAtSpace(text, n);
  std::vector<Text> words = SplitAtSpace(text, -1);
  const auto n_words = static_cast<int64_t>(words.size());
  if (n_words <= n) return words;
  // The first words stay one, with the spaces between them and before them.
  size_t end = bytes.size();
  for (int64_t i = 0; i < n; ++i) {
    end = StripSpace(bytes.substr(0, end), false, true).size() - words[static_cast<size_t>(n_words - 1 - i)].size();
  }
  const std::string_view head = StripSpace(bytes.substr(0, end), false, true);
  if (head.empty()) return words;
  std::vector<Text> out = {text.Part(0, head.size())};
  out.insert(out.end(), words.end() - n, words.end());
  return out;
}

}  // namespace

Text Strip(const Text& text, const std::optional<std::string_view>& chars, bool left, bool right) {
  const std::string_view bytes = text.view();
  size_t begin = 0, end = bytes.size();
  if (!chars) {
    begin = bytes.size() - StripSpace(bytes, left, false).size();
    end = begin + StripSpace(bytes.substr(begin), false, right).size();
    return text.Part(begin, end);
  }
  while (left && begin < end) {
    const size_t n = CharBytes(bytes, begin);
    if (!HasChar(*chars, bytes.substr(begin, n))) break;
    begin += n;
  }
  while (right && end > begin) {
    size_t at = end - 1;
    while (at > begin && end - at < 4 && (static_cast<uint8_t>(bytes[at]) & 0xC0) == 0x80) --at;
    if (!HasChar(*chars, bytes.substr(at, end - at))) break;
    end = at;
  }
  return text.Part(begin, end);
}

std::optional<Text> Replace(const Text& text, std::string_view from, const Text& to, int64_t n, int64_t limit) {
  const std::string_view bytes = text.view();
  Text out;
  size_t pos = 0;
  if (from.empty()) {  // before every character, and at the end
    while (n != 0) {
      out.Append(to);
      --n;
      if (pos >= bytes.size()) return out;
      const size_t next = pos + CharBytes(bytes, pos);
      out.AppendPart(text, pos, next);
      pos = next;
      if (out.cost() > limit) return std::nullopt;
    }
    out.AppendPart(text, pos, bytes.size());
    return out;
  }
  while (n != 0) {
    const size_t at = bytes.find(from, pos);
    if (at == bytes.npos) break;
    out.AppendPart(text, pos, at);
    out.Append(to);
    pos = at + from.size();
    --n;
    if (out.cost() > limit) return std::nullopt;
  }
  out.AppendPart(text, pos, bytes.size());
  return out;
}

Text Escaped(const Text& text) {
  Text out;
  size_t plain = 0;
  for (size_t pos = 0; pos < text.size(); ++pos) {
    const char c = text.view()[pos];
    const char* entity = c == '&'    ? "&amp;"
                         : c == '<'  ? "&lt;"
                         : c == '>'  ? "&gt;"
                         : c == '"'  ? "&#34;"
                         : c == '\'' ? "&#39;"
                                     : nullptr;
    if (entity == nullptr) continue;
    out.AppendPart(text, plain, pos);
    out.Append(entity, text.GivenAt(pos));
    plain = pos + 1;
  }
  out.AppendPart(text, plain, text.size());
  return out;
}

std::vector<Text> Split(const Text& text, const std::optional<std::string_view>& separator, int64_t n,
                        bool from_right) {
  if (!separator) return from_right ? SplitAtSpaceFromRight(text, n) : SplitAtSpace(text, n);
  const std::string_view bytes = text.view();
  std::vector<Text> out;
  if (from_right) {
    size_t end = bytes.size();
    while (n < 0 || static_cast<int64_t>(out.size()) < n) {
      const size_t at = end < separator->size() ? bytes.npos : bytes.rfind(*separator, end - separator->size());
      if (at == bytes.npos) break;
      out.push_back(text.Part(at + separator->size(), end));
      end = at;
    }
    out.push_back(text.Part(0, end));
    std::reverse(out.begin(), out.end());
    return out;
  }
  size_t pos = 0;
  while (n < 0 || static_cast<int64_t>(out.size()) < n) {
    const size_t at = bytes.find(*separator, pos);
    if (at == bytes.npos) break;
    out.push_back(text.Part(pos, at));
    pos = at + separator->size();
  }
  out.push_back(text.Part(pos, bytes.size()));
  return out;
}

std::vector<Text> Lines(const Text& text, bool keep_ends) {
  const std::string_view bytes = text.view();
  std::vector<Text> out;
  size_t begin = 0;
  for (size_t pos = 0; pos < bytes.size();) {
    const Utf8Char c = DecodeUtf8(bytes, pos);
    size_t next = pos + static_cast<size_t>(c.bytes);
    if (c.valid && IsLineEnd(c.cp)) {
      if (c.cp == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
      out.push_back(text.Part(begin, keep_ends ? next : pos));
      begin = next;
    }
    pos = next;
  }
  if (begin < bytes.size()) out.push_back(text.Part(begin, bytes.size()));
  return out;
}

}  // namespace weir::jinja
