// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/lexer.h"

#include <algorithm>
#include <cctype>

#include "base/utf8.h"
#include "text/jinja/letters.h"
#include "text/jinja/numbers.h"

namespace weir::jinja {
namespace {

std::string WithPlainNewlines(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      out += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 32);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// The string of a literal, without its quotes. Escapes are Python's; an unknown one stays as it is.
bool Unescape(std::string_view text, std::string* out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      *out += text[i];
      continue;
    }
    const char c = text[++i];
    const std::string_view plain = "\\'\"abfnrtv", means = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t at = plain.find(c); at != plain.npos) {
      *out += means[at];
    } else if (c == '\n') {
      continue;  // the line goes on
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      uint32_t cp = 0;
      if (text.size() - i - 1 < n) return false;
      for (size_t k = 1; k <= n; ++k) {
        const int digit = HexDigit(text[i + k]);
        if (digit < 0) return false;
        cp = cp * 16 + static_cast<uint32_t>(digit);
      }
      if (cp > 0x10FFFF) return false;
      AppendUtf8(cp, out);
      i += n;
    } else if (c >= '0' && c <= '7') {
      uint32_t cp = 0;
      size_t n = 0;
      for (; n < 3 && i + n < text.size() && text[i + n] >= '0' && text[i + n] <= '7'; ++n) {
        cp = cp * 8 + static_cast<uint32_t>(text[i + n] - '0');
      }
      AppendUtf8(cp, out);
      i += n - 1;
    } else if (c == 'N') {
      return false;  // names of characters: no table of them here
    } else {
      *out += '\\';
      *out += c;
    }
  }
  return true;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(WithPlainNewlines(source)) {
    // One newline at the end of a file is no part of the template.
    if (!source_.empty() && source_.back() == '\n') source_.pop_back();
  }

  Result<std::vector<Token>> Run() {
    while (at_ < source_.size()) WEIR_RETURN_IF_ERROR(Root());
    Push(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  bool Sees(std::string_view text, size_t at) const { return std::string_view(source_).substr(at).starts_with(text); }
  void Push(TokenKind kind, std::string text = {}) { tokens_.push_back({kind, std::move(text), 0, 0, line_}); }
  // Moves on, counting lines.
  void MoveTo(size_t at) {
    line_ += static_cast<int>(
        std::count(source_.begin() + static_cast<ptrdiff_t>(at_), source_.begin() + static_cast<ptrdiff_t>(at), '\n'));
    if (at > at_) line_starting_ = source_[at - 1] == '\n';
    at_ = at;
  }
  size_t SkipSpace(size_t at) const {
    const std::string_view rest = std::string_view(source_).substr(at);
    return source_.size() - StripSpace(rest, true, false).size();
  }
  Status Bad(const char* what) const { return InvalidArgument("line {} of the chat template: {}", line_, what); }

  // Text up to the next tag, with the tag's opening.
  Status Root() {
    size_t tag = at_;
    char kind = 0;
    for (; tag + 1 < source_.size(); ++tag) {
      const char c = source_[tag + 1];
      if (source_[tag] == '{' && (c == '%' || c == '{' || c == '#')) {
        kind = c;
        break;
      }
    }
    if (kind == 0) {
      Push(TokenKind::kData, source_.substr(at_));
      MoveTo(source_.size());
      return Status();
    }
    PushData(tag, kind != '{');
    size_t inside = tag + 2;
    const bool has_sign = inside < source_.size() && (source_[inside] == '-' || source_[inside] == '+');
    if (kind == '#') return Comment(inside + has_sign);
    if (kind == '%') {
      size_t after = SkipSpace(inside + has_sign);
      if (Sees("raw", after)) {
        after = SkipSpace(after + 3);
        if (Sees("-%}", after)) return Raw(SkipSpace(after + 3));
        if (Sees("%}", after)) return Raw(after + 2);
      }
    }
    // "{{-1" would be the number: Jinja2 reads the sign as the tag's.
    MoveTo(inside + has_sign);
    Push(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kPrintBegin);
    return Inside(kind == '%');
  }

  // The text before a tag at `tag`, stripped as its sign and lstrip_blocks say.
  void PushData(size_t tag, bool strips_line) {
    std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : 0;
    if (sign == '-') {
      text = StripSpace(text, false, true);
    } else if (sign != '+' && strips_line) {
      const size_t line = text.rfind('\n') + 1;  // 0 if there is none
      if ((line > 0 || line_starting_) && StripSpace(text.substr(line), true, false).empty())
        text = text.substr(0, line);
    }
    if (!text.empty()) Push(TokenKind::kData, std::string(text));
    MoveTo(tag);
  }

  // Past the end of a block or comment whose closing mark begins at `at`, sign included.
  size_t AfterBlockEnd(size_t at, char sign) const {
    at += sign == 0 ? 2 : 3;
    if (sign == '-') return SkipSpace(at);
    if (sign == 0 && at < source_.size() && source_[at] == '\n') ++at;
    return at;
  }

  Status Comment(size_t at) {
    const size_t end = source_.find("#}", at);
    if (end == std::string::npos) return Bad("a comment does not end: '#}' is missing");
    const char before = end > at ? source_[end - 1] : 0;
    const char sign = before == '-' || before == '+' ? before : '\0';
    MoveTo(AfterBlockEnd(end - (sign != 0), sign));
    return Status();
  }

  Status Raw(size_t begin) {
    MoveTo(begin);
    for (size_t tag = source_.find("{%", begin); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      size_t at = tag + 2;
      if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) ++at;
      at = SkipSpace(at);
      if (!Sees("endraw", at)) continue;
      at = SkipSpace(at + 6);
      const char sign = Sees("-%}", at) ? '-' : Sees("+%}", at) ? '+' : '\0';
      if (sign == 0 && !Sees("%}", at)) continue;
      PushData(tag, true);
      MoveTo(AfterBlockEnd(at, sign));
      return Status();
    }
    return Bad("'{% raw %}' does not end: '{% endraw %}' is missing");
  }

  Status Inside(bool block) {
    std::vector<char> open;
    while (true) {
      MoveTo(SkipSpace(at_));
      if (at_ >= source_.size()) return Bad(block ? "'%}' is missing" : "'}}' is missing");
      if (open.empty() && End(block)) return Status();
      WEIR_RETURN_IF_ERROR(One(&open));
    }
  }

  bool End(bool block) {
    const std::string mark = block ? "%}" : "}}";
    char sign = 0;
    if (Sees("-" + mark, at_)) {
      sign = '-';
    } else if (block && Sees("+" + mark, at_)) {
      sign = '+';
    } else if (!Sees(mark, at_)) {
      return false;
    }
    Push(block ? TokenKind::kBlockEnd : TokenKind::kPrintEnd);
    MoveTo(block ? AfterBlockEnd(at_, sign) : sign != 0 ? SkipSpace(at_ + 3) : at_ + 2);
    return true;
  }

  Status One(std::vector<char>* open) {
    const char c = source_[at_];
    if (std::isdigit(static_cast<unsigned char>(c))) return Number();
    if (std::isalpha(static_cast<unsigned char>(c)) || c == '_' || static_cast<unsigned char>(c) >= 0x80) {
      size_t end = at_;
      while (end < source_.size() && (std::isalnum(static_cast<unsigned char>(source_[end])) || source_[end] == '_' ||
                                      static_cast<unsigned char>(source_[end]) >= 0x80)) {
        ++end;
      }
      if (end - at_ > kMaxNameBytes) return Bad("a name that is too long");
      Push(TokenKind::kName, source_.substr(at_, end - at_));
      MoveTo(end);
      return Status();
    }
    if (c == '"' || c == '\'') return String(c);
    static constexpr std::string_view kOps[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                                "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view op : kOps) {
      if (!Sees(op, at_)) continue;
      if (op == "(" || op == "[" || op == "{") open->push_back(op == "(" ? ')' : op == "[" ? ']' : '}');
      if (op == ")" || op == "]" || op == "}") {
        if (open->empty() || open->back() != op[0]) return Bad("brackets do not match");
        open->pop_back();
      }
      Push(TokenKind::kOp, std::string(op));
      MoveTo(at_ + op.size());
      return Status();
    }
    return Bad("a character that means nothing here");
  }

  Status String(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return Bad("a string does not end");
    std::string text;
    if (!Unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1), &text)) {
      return Bad("a string has a broken escape");
    }
    Push(TokenKind::kString, std::move(text));
    MoveTo(end + 1);
    return Status();
  }

  Status Number() {
    // Digits with single underscores between them, from `at`.
    const auto digits = [&](size_t at, auto is_digit) {
      while (at < source_.size() &&
             (is_digit(source_[at]) || (source_[at] == '_' && at + 1 < source_.size() && is_digit(source_[at + 1])))) {
        ++at;
      }
      return at;
    };
    const auto decimal = [](char c) { return c >= '0' && c <= '9'; };
    int base = 10;
    if (source_[at_] == '0' && at_ + 2 < source_.size()) {
      const char mark = static_cast<char>(source_[at_ + 1] | 32);
      base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    }
    const auto of_base = [base](char c) { return HexDigit(c) >= 0 && HexDigit(c) < base; };
    size_t end = base == 10 ? digits(at_, decimal) : digits(at_ + 2, of_base);
    bool real = false;
    if (base == 10) {
      if (end + 1 < source_.size() && source_[end] == '.' && decimal(source_[end + 1])) {
        end = digits(end + 1, decimal);
        real = true;
      }
      size_t e = end;
      if (e < source_.size() && (source_[e] | 32) == 'e') {
        ++e;
        if (e < source_.size() && (source_[e] == '+' || source_[e] == '-')) ++e;
        if (e < source_.size() && decimal(source_[e])) {
          end = digits(e, decimal);
          real = true;
        }
      }
    }
    const std::string text = source_.substr(at_, end - at_);
    Push(real ? TokenKind::kFloat : TokenKind::kInt, text);
    if (real) {
      tokens_.back().real = ParseFloat(text).value_or(0);
    } else {
      const auto number = ParseInt(text, base);
      if (!number || (base == 10 && text.size() > 1 && text[0] == '0' && *number != 0))
        return Bad("a number cannot be read");
      tokens_.back().number = *number;
    }
    MoveTo(end);
    return Status();
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> Tokenize(std::string_view source) { return Lexer(source).Run(); }

}  // namespace weir::jinja
