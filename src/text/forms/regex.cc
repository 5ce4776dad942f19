// SPDX-License-Identifier: Apache-2.0
// Regular expressions, parsed.
#include <fmt/core.h>
#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "text/forms/expression.h"

namespace weir::forms {
namespace {

using Kind = Expression::Kind;

const CharSet kDigits = {{'0', '9'}};
const CharSet kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CharSet kSpaces = {{9, 13},          {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                         {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CharSet kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class RegexParser {
 public:
  explicit RegexParser(std::string_view text) : text_(text) {}

  Result<Expression> Run() {
    if (ValidUtf8Prefix(text_) != text_.size()) return InvalidArgument("the expression is not valid UTF-8");
    Expression out = Alternatives(0);
    if (at_ < text_.size()) Fail("')' without '('");
    if (!status_.ok()) return status_;
    return out;
  }

 private:
  bool More() const { return at_ < text_.size() && status_.ok(); }
  bool Is(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool Skip(std::string_view what) {
    if (!Is(what)) return false;
    at_ += what.size();
    return true;
  }
  void Fail(std::string_view what) {
    if (status_.ok()) status_ = InvalidArgument("{} at byte {} of the expression", what, at_);
  }
  char32_t Char() {
    const Utf8Char c = DecodeUtf8(text_, at_);
    at_ += static_cast<size_t>(c.bytes);
    return c.cp;
  }

  Expression Alternatives(int depth) {
    if (depth > kMaxExpressionDepth) Fail("groups are nested too deep");
    std::vector<Expression> out;
    do {
      std::vector<Expression> parts;
      while (More() && !Is("|") && !Is(")")) Item(depth, &parts);
      out.push_back(Expression::Sequence(std::move(parts)));
    } while (More() && Skip("|"));
    return Expression::OneOf(std::move(out));
  }

  void Item(int depth, std::vector<Expression>* parts) {
    Expression item;
    bool anchor = false;
    if (Skip("(")) {
      item = Group(depth);
    } else if (Skip("[")) {
      item = Expression::Chars(Class());
    } else if (Skip(".")) {
      item = Expression::Chars(AllBut(kLineEnds));
    } else if (Skip("^")) {
      item.kind = Kind::kBegin;
      anchor = true;
    } else if (Skip("$")) {
      item.kind = Kind::kEnd;
      anchor = true;
    } else if (Is("*") || Is("+") || Is("?")) {
      return Fail("nothing to repeat");
    } else if (Skip("\\")) {
      item = Expression::Chars(Escape(false));
    } else {
      const char32_t c = Char();
      item = Expression::Chars({{c, c}});
    }
    int32_t min = 0, max = 0;
    while (More() && Quantifier(&min, &max)) {
      if (anchor) return Fail("an anchor is repeated");
      item = Expression::Repeat(std::move(item), min, max);
      if (++n_repeats_ > 10'000) return Fail("too many repetitions");
      if (Is("*") || Is("+") || Is("{")) return Fail("nothing to repeat");
    }
    parts->push_back(std::move(item));
  }

  // A lazy one finds the same texts.
  bool Quantifier(int32_t* min, int32_t* max) {
    if (Skip("*")) {
      *min = 0, *max = kNoMax;
    } else if (Skip("+")) {
      *min = 1, *max = kNoMax;
    } else if (Skip("?")) {
      *min = 0, *max = 1;
    } else if (!Is("{") || !Counts(min, max)) {
      return false;
    }
    Skip("?");
    return true;
  }

  // {n}, {n,} or {n,m}; otherwise the brace is a character.
  bool Counts(int32_t* min, int32_t* max) {
    size_t at = at_ + 1;
    const auto number = [&](int32_t* out) {
      const size_t begin = at;
      int64_t value = 0;
      for (; at < text_.size() && text_[at] >= '0' && text_[at] <= '9'; ++at) {
        value = std::min<int64_t>(value * 10 + (text_[at] - '0'), int64_t{kMaxRepeat} + 1);
      }
      *out = static_cast<int32_t>(value);
      return at > begin;
    };
    if (!number(min)) return false;
    *max = *min;
    if (at < text_.size() && text_[at] == ',') {
      ++at;
      if (!number(max)) *max = kNoMax;
    }
    if (at >= text_.size() || text_[at] != '}') return false;
    if (std::max(*min, *max) > kMaxRepeat) {
      Fail(fmt::format("more than {} repetitions", kMaxRepeat));
    } else if (*max != kNoMax && *max < *min) {
      Fail("a maximum below the minimum");
    }
    at_ = at + 1;
    return true;
  }

  Expression Group(int depth) {
    if (Skip("?")) {
      if (Is("=") || Is("!") || Is("<=") || Is("<!")) {
        Fail("look-around cannot be held");
      } else if (Skip("P<") || Skip("<")) {
        while (More() && !Is(">")) ++at_;
        if (!Skip(">")) Fail("a group's name does not end");
      } else if (!Skip(":")) {
        Fail("flags of a group are not supported");
      }
    }
    Expression out = Alternatives(depth + 1);
    if (!Skip(")")) Fail("')' is missing");
    return out;
  }

  int Hex(size_t n) {
    int value = 0;
    for (size_t i = 0; i < n; ++i) {
      const char c = at_ < text_.size() ? text_[at_] : '\0';
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) {
        Fail("hexadecimal digits are missing");
        return 0;
      }
      value = value * 16 + digit;
      ++at_;
    }
    return value;
  }

  char32_t Unicode() {
    if (Skip("{")) {
      size_t n = 0;
      while (at_ + n < text_.size() && text_[at_ + n] != '}') ++n;
      if (n == 0 || n > 6) {
        Fail("hexadecimal digits are missing");
        return 0;
      }
      const int value = Hex(n);
      if (!Skip("}") || value > static_cast<int>(kMaxChar)) Fail("no such character");
      return static_cast<char32_t>(value);
    }
    const int high = Hex(4);
    if (high >= 0xD800 && high < 0xDC00 && Skip("\\u")) {
      const int low = Hex(4);
      if (low < 0xDC00 || low > 0xDFFF) Fail("half a surrogate pair");
      return static_cast<char32_t>(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00));
    }
    if (high >= 0xD800 && high <= 0xDFFF) Fail("half a surrogate pair");
    return static_cast<char32_t>(high);
  }

  // After the backslash.
  CharSet Escape(bool in_class) {
    if (!More()) {
      Fail("the expression ends within an escape");
      return {};
    }
    const char32_t c = Char();
    const auto one = [](int value) { return CharSet{{static_cast<char32_t>(value), static_cast<char32_t>(value)}}; };
    switch (c) {
      case 'd':
        return kDigits;
      case 'D':
        return AllBut(kDigits);
      case 'w':
        return kWord;
      case 'W':
        return AllBut(kWord);
      case 's':
        return kSpaces;
      case 'S':
        return AllBut(kSpaces);
      case 't':
        return one('\t');
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'x':
        return one(Hex(2));
      case 'u': {
        const char32_t value = Unicode();
        return {{value, value}};
      }
      case 'c':
        if (at_ < text_.size() && ((text_[at_] | 32) >= 'a' && (text_[at_] | 32) <= 'z')) return one(text_[at_++] & 31);
        Fail("a letter is missing after \\c");
        return {};
      case '0':
        if (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') Fail("octal escapes are not supported");
        return one(0);
      case 'b':
        if (in_class) return one('\b');
        Fail("\\b cannot be held");
        return {};
      default:
        break;
    }
    if (c < 0x80 && ((c >= '1' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) {
      Fail(fmt::format("\\{} is not supported", static_cast<char>(c)));
    }
    return {{c, c}};
  }

  CharSet Class() {
    const bool negated = Skip("^");
    CharSet out;
    while (More() && !Is("]")) {
      const CharSet first = ClassItem();
      if (Is("-") && !Is("-]") && at_ + 1 < text_.size()) {
        const size_t dash = at_++;
        const CharSet last = ClassItem();
        const auto single = [](const CharSet& s) { return s.size() == 1 && s[0].lo == s[0].hi; };
        if (single(first) && single(last)) {
          if (last[0].lo < first[0].lo) {
            at_ = dash;
            Fail("a range that ends before it begins");
          }
          out.push_back({first[0].lo, last[0].lo});
          continue;
        }
        out.push_back({'-', '-'});
        out.insert(out.end(), last.begin(), last.end());
      }
      out.insert(out.end(), first.begin(), first.end());
    }
    if (!Skip("]")) Fail("']' is missing");
    out = Clean(std::move(out));
    return negated ? AllBut(out) : out;
  }

  CharSet ClassItem() {
    if (Skip("\\")) return Escape(true);
    const char32_t c = Char();
    return {{c, c}};
  }

  const std::string_view text_;
  size_t at_ = 0;
  int n_repeats_ = 0;
  Status status_;
};

}  // namespace

Result<Expression> ParseRegex(std::string_view text) { return RegexParser(text).Run(); }

}  // namespace weir::forms
