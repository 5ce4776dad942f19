// SPDX-License-Identifier: Apache-2.0
// Filters that give a text. Most take any value and read it as str() would.
#include "text/jinja/filters.h"

#include <array>

#include "base/utf8.h"
#include "text/jinja/arguments.h"
#include "text/jinja/json_text.h"
#include "text/jinja/letters.h"
#include "text/jinja/python_format.h"
#include "text/jinja/text_ops.h"

namespace weir::jinja {
namespace {

// A filter that is a method of str.
template <const char* kName>
Value AsMethod(Machine& m, const Value& self, const Args& args) {
  return FindTextMethod(kName)->function(m, Value(m.StrOf(self)), args);
}
constexpr char kUpperName[] = "upper", kLowerName[] = "lower", kCapitalizeName[] = "capitalize", kStripName[] = "strip";

// Upper case at every word's beginning; words end at spaces, dashes and opening brackets, unlike those of str.title().
Value TitleFilter(Machine& m, const Value& self, const Args&) {
  const Text text = m.StrOf(self);
  m.Charge(static_cast<int64_t>(text.size()) * 64);
  Text out;
  bool begins = true;
  for (size_t pos = 0; m.ok() && pos < text.size();) {
    const size_t n = CharBytes(text.view(), pos);
    const Utf8Char c = DecodeUtf8(text.view(), pos);
    const bool separates =
        (c.valid && IsSpace(c.cp)) || c.cp == '-' || c.cp == '(' || c.cp == '{' || c.cp == '[' || c.cp == '<';
    const Text one = text.Part(pos, pos + n);
    out.Append(separates ? one : WithCase(one, begins ? Case::kUpper : Case::kLower));
    begins = separates;
    pos += n;
  }
  return m.NewText(std::move(out));
}

Value ReplaceFilter(Machine& m, const Value& self, const Args& args) {
  const Value *from = args.Find(0, "old"), *to = args.Find(1, "new");
  if (from == nullptr || to == nullptr) return m.Fail("filter 'replace' needs what to replace and by what");
  Args plain;
  plain.pos = {Value(m.StrOf(*from)), Value(m.StrOf(*to))};
  const Value* count = args.Find(2, "count");
  if (count != nullptr && !count->is_none()) plain.pos.push_back(*count);
  return FindTextMethod("replace")->function(m, Value(m.StrOf(self)), plain);
}

Value StringFilter(Machine& m, const Value& self, const Args&) {
  if (self.text() != nullptr) return self;
  return m.NewText(m.StrOf(self));
}

// `safe`: as it is, but markup from here on.
Value SafeFilter(Machine& m, const Value& self, const Args&) {
  Text text = m.StrOf(self);
  text.set_markup();
  return m.NewText(std::move(text));
}

template <bool kAgain>
Value EscapeFilter(Machine& m, const Value& self, const Args&) {
  const Text text = m.StrOf(self);
  if (!kAgain && text.is_markup()) return self;
  m.Charge(static_cast<int64_t>(text.size()) * 5);
  if (!m.ok()) return Value();
  Text out = Escaped(text);
  out.set_markup();
  return m.NewText(std::move(out));
}

Value IndentFilter(Machine& m, const Value& self, const Args& args) {
  if (self.text() == nullptr) return m.Fail(std::string("only a str can be indented, not ") + TypeName(self));
  const Value* width = args.Find(0, "width");
  Text space("    ");
  if (width != nullptr && width->text() != nullptr) {
    space = *width->text();
  } else if (width != nullptr) {
    const int64_t n = WholeArg(m, args, 0, "width", 4);
    m.Charge(std::clamp<int64_t>(n, 0, kMaxWeight));
    if (!m.ok()) return Value();
    space = Text(std::string(static_cast<size_t>(std::max<int64_t>(n, 0)), ' '));
  }
  const bool first = FlagArg(args, 1, "first", false), blank = FlagArg(args, 2, "blank", false);
  Text text = *self.text();
  text.Append("\n", false);
  m.Charge(static_cast<int64_t>(text.size()) * 32);
  if (!m.ok()) return Value();
  const std::vector<Text> lines = Lines(text, false);
  Text out;
  for (size_t i = 0; m.ok() && i < lines.size(); ++i) {
    m.Charge(space.cost() + 32);
    if (i > 0) out.Append("\n", false);
    if (i == 0 ? first : blank || !lines[i].empty()) out.Append(space);
    out.Append(lines[i]);
  }
  return m.NewText(std::move(out));
}

Value FormatFilter(Machine& m, const Value& self, const Args& args) {
  if (!args.pos.empty() && !args.named.empty()) return m.Fail("filter 'format' takes places or names, not both");
  if (args.named.empty()) return FormatPercent(m, m.StrOf(self), m.NewSeq(args.pos, SeqKind::kTuple));
  std::vector<std::pair<Value, Value>> named;
  for (const auto& [name, value] : args.named) named.emplace_back(Text(name), value);
  return FormatPercent(m, m.StrOf(self), m.NewDict(std::move(named)));
}

Value CenterFilter(Machine& m, const Value& self, const Args& args) {
  Args plain;
  plain.pos = {WholeArg(m, args, 0, "width", 80)};
  return FindTextMethod("center")->function(m, Value(m.StrOf(self)), plain);
}

Value WordCount(Machine& m, const Value& self, const Args&) {
  // Runs of letters, digits and underscores.
  const Text text = m.StrOf(self);
  int64_t n = 0;
  bool in_word = false;
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = DecodeUtf8(text.view(), pos);
    const bool is_word = c.valid && (IsLetter(c.cp) || IsDigit(c.cp) || c.cp == '_');
    n += is_word && !in_word;
    in_word = is_word;
    pos += static_cast<size_t>(c.bytes);
  }
  m.Charge(static_cast<int64_t>(text.size()) * 4);
  return n;
}

Value TruncateFilter(Machine& m, const Value& self, const Args& args) {
  const int64_t length = WholeArg(m, args, 0, "length", 255), leeway = WholeArg(m, args, 3, "leeway", 5);
  const bool kills_words = FlagArg(args, 1, "killwords", false);
  const Text end = args.Find(2, "end") != nullptr ? TextArg(m, args, 2, "end") : Text("...");
  if (self.text() == nullptr) return m.Fail(std::string("only a str can be shortened, not ") + TypeName(self));
  const Text& text = *self.text();
  m.Charge(static_cast<int64_t>(text.size()) * 2);
  const auto n = static_cast<int64_t>(CountChars(text.view())), n_end = static_cast<int64_t>(CountChars(end.view()));
  if (m.ok() && (length < n_end || leeway < 0)) return m.Fail("filter 'truncate' has no room for its end");
  if (!m.ok() || n <= length || n - length <= leeway) return self;
  size_t cut = CharPos(text.view(), static_cast<size_t>(length - n_end));
  if (!kills_words) {
    if (const size_t space = text.view().substr(0, cut).rfind(' '); space != std::string_view::npos) cut = space;
  }
  Text out = text.Part(0, cut);
  out.Append(end);
  return m.NewText(std::move(out));
}

Value UrlEncode(Machine& m, const Value& self, const Args&) {
  if (self.dict() != nullptr || self.seq() != nullptr) return m.Fail("filter 'urlencode' takes a text here");
  const Text text = m.StrOf(self);
  m.Charge(static_cast<int64_t>(text.size()) * 16);
  Text out;
  for (size_t pos = 0; m.ok() && pos < text.size(); ++pos) {
    const auto c = static_cast<unsigned char>(text.view()[pos]);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                       c == '.' || c == '-' || c == '~' || c == '/';
    static constexpr char kHex[] = "0123456789ABCDEF";
    out.Append(plain ? std::string(1, static_cast<char>(c)) : std::string{'%', kHex[c >> 4], kHex[c & 15]},
               text.GivenAt(pos));
  }
  return m.NewText(std::move(out));
}

Value ToJson(Machine& m, const Value& self, const Args& args) {
  JsonForm form;
  form.ascii = FlagArg(args, 0, "ensure_ascii", false);
  form.sort_keys = FlagArg(args, 3, "sort_keys", false);
  const Value* indent = args.Find(1, "indent");
  if (indent != nullptr && indent->text() != nullptr) {
    form.indent = *indent->text();
  } else if (indent != nullptr && !indent->is_none()) {
    const int64_t n = WholeArg(m, args, 1, "indent", 0);
    if (n > 1000) return m.Fail("an indent of more than 1000 spaces");
    form.indent = Text(std::string(static_cast<size_t>(std::max<int64_t>(n, 0)), ' '));
  }
  if (form.indent) form.item_separator = Text(",");
  if (const Value* separators = args.Find(2, "separators"); separators != nullptr && !separators->is_none()) {
    std::vector<Value> two;
    if (!m.Items(*separators, &two)) return Value();
    if (two.size() != 2 || two[0].text() == nullptr || two[1].text() == nullptr) {
      return m.Fail("'separators' of tojson must be two texts");
    }
    form.item_separator = *two[0].text();
    form.key_separator = *two[1].text();
  }
  return JsonOf(m, self, form);
}

constexpr Named kTextFilters[] = {
    {"upper", AsMethod<kUpperName>},
    {"lower", AsMethod<kLowerName>},
    {"capitalize", AsMethod<kCapitalizeName>},
    {"title", TitleFilter},
    {"trim", AsMethod<kStripName>, 0, 1, {"chars"}},
    {"replace", ReplaceFilter, 2, 3, {"old", "new", "count"}},
    {"string", StringFilter},
    {"safe", SafeFilter},
    {"escape", EscapeFilter<false>},
    {"e", EscapeFilter<false>},
    {"forceescape", EscapeFilter<true>},
    {"indent", IndentFilter, 0, 3, {"width", "first", "blank"}},
    {"format", FormatFilter, 0, kAnyNumber},
    {"center", CenterFilter, 0, 1, {"width"}},
    {"wordcount", WordCount},
    {"truncate", TruncateFilter, 0, 4, {"length", "killwords", "end", "leeway"}},
    {"urlencode", UrlEncode},
    {"tojson", ToJson, 0, 4, {"ensure_ascii", "indent", "separators", "sort_keys"}},
};

}  // namespace

std::span<const Named> TextFilters() { return kTextFilters; }

const Named* FindFilter(std::string_view name) {
  for (const std::span<const Named> group : {TextFilters(), ListFilters(), NumberFilters()}) {
    for (const Named& one : group) {
      if (one.name == name) return &one;
    }
  }
  return nullptr;
}

}  // namespace weir::jinja
