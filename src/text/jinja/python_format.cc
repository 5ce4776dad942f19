// SPDX-License-Identifier: Apache-2.0
// The subset of Python's format specifications that numbers and strings have. A width or a precision is at most 1000.
#include "text/jinja/python_format.h"

#include <fmt/core.h>
#include <algorithm>
#include <cmath>
#include <optional>

#include "text/jinja/letters.h"
#include "text/jinja/numbers.h"

namespace weir::jinja {
namespace {

constexpr int kMaxWidth = 1000;

struct Spec {
  Text fill = Text(" ");
  char align = 0;  // < > ^ =, or 0 for the type's own
  char sign = '-';
  bool alternate = false, zero = false;
  char group = 0;  // , or _
  int width = 0;
  int precision = -1;
  char type = 0;
};

// Digits from `pos`; false when the number is too large.
bool ReadNumber(std::string_view text, size_t* pos, int* out) {
  int number = 0;
  while (*pos < text.size() && IsDigit(static_cast<unsigned char>(text[*pos]))) {
    number = number * 10 + (text[(*pos)++] - '0');
    if (number > kMaxWidth) return false;
  }
  *out = number;
  return true;
}

std::string Grouped(const std::string& digits, char group, size_t every) {
  if (group == 0) return digits;
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % every == 0) out += group;
    out += digits[i];
  }
  return out;
}

std::string InBase(uint64_t value, unsigned base, bool upper) {
  std::string out;
  do {
    const unsigned digit = static_cast<unsigned>(value % base);
    out += static_cast<char>(digit < 10 ? '0' + digit : (upper ? 'A' : 'a') + digit - 10);
    value /= base;
  } while (value != 0);
  std::reverse(out.begin(), out.end());
  return out;
}

// A number's digits without its sign; nullopt for a type that numbers do not have.
std::optional<std::string> Digits(const Value& value, const Spec& spec) {
  char type = spec.type;
  if (!value.is_float() &&
      (type == 0 || type == 'd' || type == 'x' || type == 'X' || type == 'o' || type == 'b' || type == 'n')) {
    const int64_t whole = value.integer();
    const uint64_t size = whole < 0 ? ~static_cast<uint64_t>(whole) + 1 : static_cast<uint64_t>(whole);
    const unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
    const std::string digits = Grouped(InBase(size, base, type == 'X'), spec.group, base == 10 ? 3 : 4);
    return (spec.alternate && base != 10 ? std::string("0") + type : std::string()) + digits;
  }
  double number = std::fabs(value.number());
  if (type == '%') number *= 100;
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  std::string out;
  if (std::isnan(number) || std::isinf(number)) {
    out = std::isnan(number) ? "nan" : "inf";
  } else if (type == 'f' || type == 'F' || type == '%') {
    out = fmt::format("{:.{}f}", number, precision);
  } else if (type == 'e' || type == 'E') {
    out = fmt::format("{:.{}e}", number, precision);
  } else if (type == 'g' || type == 'G' || type == 'n') {
    out = fmt::format("{:.{}g}", number, precision);
  } else if (type == 0 && spec.precision < 0) {
    out = FloatText(number);
  } else if (type == 0) {
    out = fmt::format("{:.{}g}", number, spec.precision);
    if (out.find_first_of(".en") == out.npos) out += ".0";
  } else {
    return std::nullopt;
  }
  if (spec.group != 0) {
    const size_t end = std::min(out.find_first_not_of("0123456789"), out.size());
    out = Grouped(out.substr(0, end), spec.group, 3) + out.substr(end);
  }
  if (type == 'E' || type == 'G' || type == 'F') {
    for (char& c : out) c = static_cast<char>(ToUpper(static_cast<unsigned char>(c)));
  }
  return out + (type == '%' ? "%" : "");
}

Text Padded(const Text& body, const Spec& spec, char align) {
  const auto n = static_cast<int>(CountChars(body.view()));
  const int missing = std::max(0, spec.width - n);
  const int left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  Text out;
  for (int i = 0; i < left; ++i) out.Append(spec.fill);
  out.Append(body);
  for (int i = left; i < missing; ++i) out.Append(spec.fill);
  return out;
}

// nullopt: the type does not fit the value.
std::optional<Text> Formatted(const Value& value, const Text& as_text, const Spec& spec) {
  if (value.is_number()) {
    const auto digits = Digits(value, spec);
    if (!digits) return std::nullopt;
    const bool negative = value.is_float() ? std::signbit(value.number()) : value.integer() < 0;
    const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
    if (spec.align == '=' || (spec.zero && spec.align == 0)) {
      const Text fill = spec.zero && spec.align == 0 ? Text("0") : spec.fill;
      Text out(sign);
      for (size_t n = sign.size() + digits->size(); static_cast<int>(n) < spec.width; ++n) out.Append(fill);
      out.Append(*digits, false);
      return out;
    }
    return Padded(Text(sign + *digits), spec, spec.align == 0 ? '>' : spec.align);
  }
  if (value.text() == nullptr || (spec.type != 0 && spec.type != 's') || spec.align == '=') return std::nullopt;
  Text body = as_text;
  if (spec.precision >= 0) body = body.Part(0, CharPos(body.view(), static_cast<size_t>(spec.precision)));
  return Padded(body, spec, spec.align == 0 ? '<' : spec.align);
}

// [[fill]align][sign][#][0][width][,][.precision][type]
// `given`: it came with the request, and so did what it fills with.
bool ReadSpec(std::string_view text, bool given, Spec* out) {
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  size_t pos = 0;
  if (!text.empty()) {
    const size_t n = CharBytes(text, 0);
    if (text.size() > n && is_align(text[n])) {
      out->fill = Text(std::string(text.substr(0, n)), given);
      out->align = text[n];
      pos = n + 1;
    } else if (is_align(text[0])) {
      out->align = text[0];
      pos = 1;
    }
  }
  if (pos < text.size() && (text[pos] == '+' || text[pos] == '-' || text[pos] == ' ')) out->sign = text[pos++];
  if (pos < text.size() && text[pos] == '#') {
    out->alternate = true;
    ++pos;
  }
  if (pos < text.size() && text[pos] == '0') {
    out->zero = out->align == 0;
    if (out->align != 0 && out->fill.view() == " ") out->fill = Text("0");
    ++pos;
  }
  if (!ReadNumber(text, &pos, &out->width)) return false;
  if (pos < text.size() && (text[pos] == ',' || text[pos] == '_')) out->group = text[pos++];
  if (pos < text.size() && text[pos] == '.') {
    if (++pos >= text.size() || !IsDigit(static_cast<unsigned char>(text[pos]))) return false;
    if (!ReadNumber(text, &pos, &out->precision)) return false;
  }
  if (pos < text.size()) out->type = text[pos++];
  return pos == text.size();
}

// "a.b[0]" from a first value on.
Value Follow(Machine& m, Value at, std::string_view path) {
  while (m.ok() && !path.empty()) {
    if (path[0] == '.') {
      path.remove_prefix(1);
      const size_t end = std::min(path.find_first_of(".["), path.size());
      // As in Python, attributes only.
      at = at.dict() != nullptr ? Value() : m.Attribute(at, path.substr(0, end));
      path.remove_prefix(end);
    } else if (path[0] == '[' && path.find(']') != path.npos) {
      const std::string_view key = path.substr(1, path.find(']') - 1);
      const auto number = ParseInt(key, 10);
      at = m.Item(at, number && at.dict() == nullptr ? Value(*number) : Value::Words(std::string(key)));
      path.remove_prefix(key.size() + 2);
    } else {
      return m.Fail("a field of a format is broken");
    }
    if (m.ok() && at.is_undefined()) return m.Fail("a field of a format does not exist");
  }
  return at;
}

// The texts of one value under its conversion: !s, !r.
Text Converted(Machine& m, const Value& value, char conversion) {
  if (conversion != 'r') return m.StrOf(value);
  m.Charge(WeightOf(value) * 4);
  return m.ok() ? Repr(value) : Text();
}

}  // namespace

Value FormatBraces(Machine& m, const Text& format, const Args& args) {
  const std::string_view text = format.view();
  m.Charge(format.cost() * 8);
  Text out;
  size_t next = 0;
  for (size_t pos = 0; m.ok() && pos < text.size();) {
    const char c = text[pos];
    if (c != '{' && c != '}') {
      const size_t end = std::min(text.find_first_of("{}", pos), text.size());
      out.AppendPart(format, pos, end);
      pos = end;
      continue;
    }
    if (pos + 1 < text.size() && text[pos + 1] == c) {
      out.AppendPart(format, pos, pos + 1);
      pos += 2;
      continue;
    }
    const size_t end = text.find('}', pos);
    if (c == '}' || end == text.npos) return m.Fail("a format has a single brace");
    std::string_view field = text.substr(pos + 1, end - pos - 1);
    pos = end + 1;
    if (field.find('{') != field.npos) return m.Fail("a format with fields inside of fields");
    const size_t colon = std::min(field.find(':'), field.size());
    std::string_view name = field.substr(0, colon);
    Spec spec;
    if (colon < field.size() && !ReadSpec(field.substr(colon + 1), format.AnyGiven(), &spec))
      return m.Fail("a format that cannot be read");
    char conversion = 0;
    if (const size_t mark = name.find('!'); mark != name.npos) {
      conversion = mark + 2 == name.size() ? name[mark + 1] : '?';
      if (conversion != 's' && conversion != 'r') return m.Fail("a format that cannot be read");
      name = name.substr(0, mark);
    }
    const size_t head = std::min(name.find_first_of(".["), name.size());
    const std::string_view first = name.substr(0, head);
    Value value;
    if (first.empty() || IsDigit(static_cast<unsigned char>(first[0]))) {
      const auto number = first.empty() ? std::optional<int64_t>(static_cast<int64_t>(next++)) : ParseInt(first, 10);
      if (!number || static_cast<size_t>(*number) >= args.pos.size())
        return m.Fail("a format has more fields than values");
      value = args.pos[static_cast<size_t>(*number)];
    } else {
      m.Charge(static_cast<int64_t>(args.named.size()) * 2);
      const Value* named = args.Find(kMaxWidth * size_t{1000000}, first);
      if (named == nullptr)
        return m.Fail("a format names '" + std::string(first.substr(0, 40)) + "', which is not given");
      value = *named;
    }
    value = Follow(m, std::move(value), name.substr(head));
    const Text body = Converted(m, value, conversion);
    if (!m.ok()) return Value();
    if (colon + 1 >= field.size()) {
      out.Append(body);
    } else {
      const auto formatted = Formatted(conversion != 0 ? Value(body) : value, body, spec);
      if (!formatted) return m.Fail("a format does not fit its value");
      out.Append(*formatted);
    }
    m.Charge(body.cost() + spec.width * 4 + 64);
  }
  return m.NewText(std::move(out));
}

Value FormatPercent(Machine& m, const Text& format, const Value& value) {
  const std::string_view text = format.view();
  const Seq* seq = value.seq();
  const bool is_tuple = seq != nullptr && seq->kind == SeqKind::kTuple;
  m.Charge(format.cost() * 8);
  size_t next = 0;
  Text out;
  for (size_t pos = 0; m.ok() && pos < text.size();) {
    if (text[pos] != '%') {
      const size_t end = std::min(text.find('%', pos), text.size());
      out.AppendPart(format, pos, end);
      pos = end;
      continue;
    }
    if (++pos >= text.size()) return m.Fail("a format ends in %");
    if (text[pos] == '%') {
      out.AppendPart(format, pos, pos + 1);
      ++pos;
      continue;
    }
    const Value* one = nullptr;
    if (text[pos] == '(') {
      const size_t end = text.find(')', pos);
      if (end == text.npos || value.dict() == nullptr) return m.Fail("a format with names needs a dict");
      one = m.Look(*value.dict(), Value::Words(std::string(text.substr(pos + 1, end - pos - 1))));
      if (one == nullptr) return m.Fail("a format names what is not given");
      pos = end + 1;
    }
    Spec spec;
    bool left = false;
    for (; pos < text.size() && std::string_view("-+ #0").find(text[pos]) != std::string_view::npos; ++pos) {
      if (text[pos] == '-') left = true;
      if (text[pos] == '+' || (text[pos] == ' ' && spec.sign == '-')) spec.sign = text[pos];
      if (text[pos] == '#') spec.alternate = true;
      if (text[pos] == '0') spec.zero = true;
    }
    if (!ReadNumber(text, &pos, &spec.width)) return m.Fail("a format is too wide");
    if (pos < text.size() && text[pos] == '.') {
      ++pos;
      if (!ReadNumber(text, &pos, &spec.precision)) return m.Fail("a format is too wide");
    }
    if (pos >= text.size()) return m.Fail("a format is not complete");
    spec.type = text[pos++];
    if (one == nullptr) {
      if (is_tuple ? next >= seq->items.size() : next > 0) return m.Fail("a format has more fields than values");
      one = is_tuple ? &seq->items[next] : &value;
      ++next;
    }
    if (left) spec.align = '<';
    if (spec.type == 's' || spec.type == 'r') {
      const Text body = Converted(m, *one, spec.type);
      spec.type = 's';
      spec.zero = false;
      if (!left) spec.align = '>';
      if (m.ok()) out.Append(*Formatted(Value(body), body, spec));
    } else {
      if (spec.type == 'i' || spec.type == 'u') spec.type = 'd';
      Value number = *one;
      const bool whole = std::string_view("dxXo").find(spec.type) != std::string_view::npos;
      if (!number.is_number()) return m.Fail("a format needs a number");
      if (whole && number.is_float()) {
        if (spec.type != 'd' || !(std::fabs(number.number()) < 9.2e18)) return m.Fail("a format needs a whole number");
        number = static_cast<int64_t>(number.number());
      }
      if (!whole && std::string_view("eEfFgG").find(spec.type) == std::string_view::npos) {
        return m.Fail("a format of an unknown type");
      }
      if (number.is_bool()) number = number.integer();
      if (!left && !spec.zero) spec.align = '>';
      const auto formatted = Formatted(number, Text(), spec);
      if (!formatted) return m.Fail("a format does not fit its value");
      out.Append(*formatted);
    }
    m.Charge(spec.width + 64 + (one->text() != nullptr ? static_cast<int64_t>(one->text()->size()) : 0));
  }
  const bool all_used = is_tuple ? next >= seq->items.size() : next > 0 || value.dict() != nullptr || seq != nullptr;
  if (m.ok() && !all_used) return m.Fail("not all values of a format are used");
  return m.NewText(std::move(out));
}

}  // namespace weir::jinja
