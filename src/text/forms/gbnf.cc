// SPDX-License-Identifier: Apache-2.0
#include "text/forms/gbnf.h"

#include <fmt/core.h>
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "base/utf8.h"
#include "text/forms/expression.h"

namespace weir::forms {
namespace {

using Kind = Expression::Kind;

constexpr size_t kMaxRules = 20'000;
constexpr int kMaxRepeated = 4;  // repetitions of one repetition

bool IsWord(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || IsAsciiDigit(c); }

class GrammarParser {
 public:
  GrammarParser(std::string_view text, const FormVocab& vocab, NetworkBuilder* network)
      : text_(text), vocab_(vocab), network_(*network) {}

  Result<int32_t> Run() {
    if (ValidUtf8Prefix(text_) != text_.size()) return InvalidArgument("the grammar is not valid UTF-8");
    Space(true);
    while (More()) Rule();
    if (!status_.ok()) return status_;
    for (const auto& [name, rule] : rules_) {
      if (!rule.defined) {
        return InvalidArgument("line {} of the grammar: rule '{}' is not defined", rule.line, name);
      }
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) return InvalidArgument("the grammar has no rule 'root'");
    for (const auto& [name, rule] : rules_) {
      Emit(rule.body, Writing::kPlain, network_.StartOf(rule.id), network_.EndOf(rule.id), &network_);
    }
    return root->second.id;
  }

 private:
  struct RuleInfo {
    int32_t id = -1;
    int line = 0;  // of its first mention
    bool defined = false;
    Expression body;  // of its last definition
  };

  bool More() const { return at_ < text_.size() && status_.ok(); }
  char Peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  int Line() {
    const size_t here = std::min(at_, text_.size());
    for (; line_at_ < here; ++line_at_) line_ += text_[line_at_] == '\n' ? 1 : 0;
    return line_;
  }
  void Fail(const std::string& what) {
    if (status_.ok()) status_ = InvalidArgument("line {} of the grammar: {}", Line(), what);
  }
  bool Skip(char c) {
    if (Peek() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }

  void Space(bool newlines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
      } else if (c == ' ' || c == '\t' || (newlines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string_view Name() {
    const size_t begin = at_;
    while (at_ < text_.size() && IsWord(text_[at_])) ++at_;
    if (at_ == begin) Fail("a rule's name is expected (letters, digits and '-')");
    return text_.substr(begin, at_ - begin);
  }

  RuleInfo& Find(std::string_view name) {
    const auto [it, is_new] = rules_.try_emplace(std::string(name));
    if (is_new) {
      it->second.id = network_.AddRule(fmt::format("rule '{}'", name.substr(0, 64)));
      it->second.line = Line();
      if (rules_.size() > kMaxRules) Fail(fmt::format("more than {} rules", kMaxRules));
    }
    return it->second;
  }

  void Rule() {
    const std::string_view name = Name();
    Space(false);
    if (!status_.ok()) return;
    if (!text_.substr(at_).starts_with("::=")) return Fail("'::=' is expected after a rule's name");
    at_ += 3;
    Space(true);
    Expression body = Alternatives(0);
    RuleInfo& rule = Find(name);
    rule.body = std::move(body);
    rule.defined = true;
    if (!status_.ok()) return;
    if (at_ < text_.size() && Peek() != '\n' && Peek() != '\r') {
      return Fail(fmt::format("a new line or the end is expected before '{}'", Utf8Char1()));
    }
    Space(true);
  }

  // The character here, for an error.
  std::string Utf8Char1() const {
    const auto bytes = static_cast<size_t>(DecodeUtf8(text_, at_).bytes);
    return static_cast<uint8_t>(text_[at_]) < 0x20 ? "?" : std::string(text_.substr(at_, bytes));
  }

  Expression Alternatives(int depth) {
    if (depth > kMaxExpressionDepth) Fail("groups are nested too deep");
    std::vector<Expression> out;
    out.push_back(Sequence(depth));
    while (More() && Skip('|')) {
      Space(true);
      out.push_back(Sequence(depth));
    }
    return Expression::OneOf(std::move(out));
  }

  Expression Sequence(int depth) {
    const bool nested = depth > 0;
    std::vector<Expression> parts;
    while (More()) {
      const char c = Peek();
      if (c == '"') {
        parts.push_back(Literal());
      } else if (c == '[') {
        parts.push_back(Class());
      } else if (c == '<' || c == '!') {
        parts.push_back(Token());
      } else if (c == '.') {
        ++at_;
        parts.push_back(Expression::Chars(AllChars()));
      } else if (c == '(') {
        ++at_;
        Space(true);
        parts.push_back(Alternatives(depth + 1));
        if (!Skip(')')) Fail("')' is expected");
      } else if (c == '*' || c == '+' || c == '?' || c == '{') {
        if (parts.empty()) Fail(fmt::format("nothing to repeat before '{}'", c));
        if (!status_.ok()) break;
        int32_t min = c == '+' ? 1 : 0, max = c == '?' ? 1 : kNoMax;
        ++at_;
        if (c == '{') Counts(&min, &max, nested);
        parts.back() = Repeated(std::move(parts.back()), min, max);
      } else if (IsWord(c)) {
        Expression ref;
        ref.kind = Kind::kRule;
        ref.rule = Find(Name()).id;
        parts.push_back(std::move(ref));
      } else {
        break;
      }
      Space(nested);
    }
    return Expression::Sequence(std::move(parts));
  }

  Expression Repeated(Expression part, int32_t min, int32_t max) {
    int depth = 0;
    for (const Expression* e = &part; e->kind == Kind::kRepeat; e = &e->parts[0]) ++depth;
    if (depth > kMaxRepeated) Fail("too many repetitions of one repetition");
    return Expression::Repeat(std::move(part), min, max);
  }

  bool Number(int32_t* out) {
    int64_t value = 0;
    const size_t begin = at_;
    for (; IsAsciiDigit(Peek()); ++at_) value = std::min<int64_t>(value * 10 + (Peek() - '0'), int64_t{kMaxRepeat} + 1);
    *out = static_cast<int32_t>(value);
    if (value > kMaxRepeat) Fail(fmt::format("more than {} repetitions", kMaxRepeat));
    return at_ > begin;
  }

  void Counts(int32_t* min, int32_t* max, bool nested) {
    Space(nested);
    if (!Number(min)) return Fail("a number is expected after '{'");
    Space(nested);
    *max = *min;
    if (Skip(',')) {
      Space(nested);
      if (!Number(max)) *max = kNoMax;
      Space(nested);
    }
    if (!Skip('}')) return Fail("'}' is expected");
    if (*max != kNoMax && *max < *min) Fail(fmt::format("at most {} and at least {} repetitions", *max, *min));
  }

  char32_t Hex(int n) {
    uint64_t value = 0;
    for (int i = 0; i < n; ++i) {
      const char c = Peek();
      const int digit = IsAsciiDigit(c)        ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) {
        Fail(fmt::format("{} hexadecimal digits are expected", n));
        return 0;
      }
      value = value * 16 + static_cast<uint64_t>(digit);
      ++at_;
    }
    if (value > kMaxChar || (value >= 0xD800 && value <= 0xDFFF)) Fail("no such character");
    return static_cast<char32_t>(value);
  }

  char32_t Char() {
    if (Peek() != '\\') {
      const Utf8Char c = DecodeUtf8(text_, at_);
      at_ += static_cast<size_t>(c.bytes);
      return c.cp;
    }
    ++at_;
    const char c = Peek();
    ++at_;
    switch (c) {
      case 'x':
        return Hex(2);
      case 'u':
        return Hex(4);
      case 'U':
        return Hex(8);
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'n':
        return '\n';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
        return static_cast<char32_t>(c);
      default:
        --at_;
        Fail("unknown escape; known are \\x \\u \\U \\t \\r \\n \\\\ \\\" \\[ \\] \\-");
        return 0;
    }
  }

  Expression Literal() {
    Expression out;
    ++at_;
    while (More() && Peek() != '"') {
      const char32_t c = Char();
      out.parts.push_back(Expression::Chars({{c, c}}));
    }
    if (!Skip('"')) Fail("a text does not end: '\"' is missing");
    return out;
  }

  Expression Class() {
    ++at_;
    const bool negated = Skip('^');
    CharSet set;
    while (More() && Peek() != ']') {
      const char32_t lo = Char();
      char32_t hi = lo;
      if (Peek() == '-' && Peek(1) != ']' && at_ + 1 < text_.size()) {
        ++at_;
        hi = Char();
      }
      if (hi < lo) Fail("a range of characters ends before it begins");
      set.push_back({lo, hi});
    }
    if (set.empty()) Fail("a class without characters");
    if (!Skip(']')) Fail("a class does not end: ']' is missing");
    set = Clean(std::move(set));
    return Expression::Chars(negated ? AllBut(set) : set);
  }

  Expression Token() {
    Expression out;
    out.kind = Kind::kToken;
    if (Skip('!')) Fail("'!<...>', any other token, cannot be held");
    if (!Skip('<')) Fail("'<' is expected");
    if (!status_.ok()) return out;
    const size_t begin = at_ - 1;
    if (Skip('[')) {
      if (!Number(&out.rule)) Fail("a token's id is expected");
      if (!Skip(']')) Fail("']' is expected");
    } else {
      while (More() && Peek() != '>') ++at_;
    }
    if (!Skip('>')) Fail("'>' is expected");
    if (!status_.ok()) return out;
    if (out.rule >= vocab_.n_tokens()) {
      Fail(fmt::format("token {} is not in the vocabulary", out.rule));
    } else if (out.rule < 0) {
      const std::string_view text = text_.substr(begin, at_ - begin);
      out.rule = vocab_.FindControl(text);
      if (out.rule < 0) Fail(fmt::format("'{}' is not a control token of the vocabulary", text.substr(0, 64)));
    }
    if (!status_.ok()) return out;
    const std::string_view bytes = vocab_.Bytes(out.rule);
    if (bytes.empty()) {
      Fail(fmt::format("token {} stands for no text", out.rule));
    } else if (static_cast<uint8_t>(bytes[0]) != kTokenByte) {
      Fail(fmt::format("token {} is no control token: write its text in quotes", out.rule));
    }
    return out;
  }

  const std::string_view text_;
  const FormVocab& vocab_;
  NetworkBuilder& network_;
  size_t at_ = 0, line_at_ = 0;
  int line_ = 1;
  std::map<std::string, RuleInfo, std::less<>> rules_;
  Status status_;
};

}  // namespace

Result<int32_t> AddGrammar(std::string_view text, const FormVocab& vocab, NetworkBuilder* network) {
  return GrammarParser(text, vocab, network).Run();
}

}  // namespace weir::forms
