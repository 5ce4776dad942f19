// SPDX-License-Identifier: Apache-2.0
// Methods of str.
#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/arguments.h"
#include "text/jinja/letters.h"
#include "text/jinja/numbers.h"
#include "text/jinja/python_format.h"
#include "text/jinja/text_ops.h"

namespace weir::jinja {
namespace {

const Text& OfText(const Value& self) { return *self.text(); }

template <Case kHow>
Value ChangeCase(Machine& m, const Value& self, const Args&) {
  m.Charge(static_cast<int64_t>(OfText(self).size() * 8));
  return m.NewText(WithCase(OfText(self), kHow));
}

template <bool kLeft, bool kRight>
Value StripMethod(Machine& m, const Value& self, const Args& args) {
  m.Charge(static_cast<int64_t>(OfText(self).size()) * 4);
  if (!m.ok()) return Value();
  if (!Has(args, 0, "chars")) return m.NewText(Strip(OfText(self), std::nullopt, kLeft, kRight));
  const Text chars = TextArg(m, args, 0, "chars");
  m.Charge(static_cast<int64_t>(OfText(self).size() * (1 + chars.size())));
  return m.ok() ? m.NewText(Strip(OfText(self), chars.view(), kLeft, kRight)) : Value();
}

// Parts of a text that is split at a separator, or at spaces where that is empty; never too few.
int64_t MostParts(std::string_view text, std::string_view separator) {
  if (separator.empty()) {
    return 1 + std::count_if(text.begin(), text.end(), [](char c) { return static_cast<signed char>(c) <= ' '; });
  }
  int64_t n = 1;
  for (size_t at = text.find(separator); at != text.npos; at = text.find(separator, at + separator.size())) ++n;
  return n;
}

Value ListOf(Machine& m, std::vector<Text> parts) {
  std::vector<Value> out;
  for (Text& part : parts) out.emplace_back(std::move(part));
  return m.NewSeq(std::move(out));
}

template <bool kFromRight>
Value SplitMethod(Machine& m, const Value& self, const Args& args) {
  const int64_t n = WholeArg(m, args, 1, "maxsplit", -1);
  const Text& text = OfText(self);
  const bool at_space = !Has(args, 0, "sep");
  const Text separator = at_space ? Text() : TextArg(m, args, 0, "sep");
  if (!at_space && m.ok() && separator.empty()) return m.Fail("a text cannot be split at an empty one");
  // Paid for before it is made: at most so many parts.
  m.ChargeSearch(text.view(), separator.view());
  if (!m.ok()) return Value();
  m.Charge(static_cast<int64_t>(text.size()) * 2 + 128 * MostParts(text.view(), separator.view()));
  if (!m.ok()) return Value();
  const auto at = at_space ? std::nullopt : std::optional<std::string_view>(separator.view());
  return ListOf(m, Split(text, at, n, kFromRight));
}

Value SplitLines(Machine& m, const Value& self, const Args& args) {
  const Text& text = OfText(self);
  m.Charge(static_cast<int64_t>(text.size()) * 2 + 128 * MostParts(text.view(), ""));
  return m.ok() ? ListOf(m, Lines(text, FlagArg(args, 0, "keepends", false))) : Value();
}

// The part that `start` and `end` leave of a text, as bytes; nullopt if `start` is behind the end.
struct Window {
  size_t begin = 0, end = 0;
  bool valid = true;
};
Window WindowOf(Machine& m, const Text& text, const Args& args) {
  if (!Has(args, 1, "start") && !Has(args, 2, "end")) return {0, text.size(), true};
  m.Charge(static_cast<int64_t>(text.size()));
  const auto n = static_cast<int64_t>(CountChars(text.view()));
  const auto at = [&](int64_t i) { return std::max<int64_t>(i < 0 ? i + n : i, 0); };
  const int64_t start = at(std::clamp(WholeArg(m, args, 1, "start", 0), -n, n + 1));
  const int64_t end = std::min(at(std::clamp(WholeArg(m, args, 2, "end", n), -n - 1, n)), n);
  if (start > n || start > end) return {0, 0, false};
  return {CharPos(text.view(), static_cast<size_t>(start)), CharPos(text.view(), static_cast<size_t>(end)), true};
}

template <bool kStart>
Value Affix(Machine& m, const Value& self, const Args& args) {
  const Window window = WindowOf(m, OfText(self), args);
  const std::string_view text = OfText(self).view().substr(window.begin, window.end - window.begin);
  const auto fits = [&](const Text& affix) {
    m.Charge(static_cast<int64_t>(affix.size()));
    return window.valid && (kStart ? text.starts_with(affix.view()) : text.ends_with(affix.view()));
  };
  const Value* affix = args.Find(0, "");
  if (affix->text() != nullptr) return fits(*affix->text());
  const Seq* all = affix->seq();
  if (all == nullptr || all->kind != SeqKind::kTuple) {
    return m.Fail(std::string("a text starts and ends with a str or a tuple of them, not with ") + TypeName(*affix));
  }
  for (const Value& one : all->items) {
    if (one.text() == nullptr) return m.Fail("a text starts and ends with texts");
    if (fits(*one.text())) return true;
  }
  return false;
}

// find, rfind, index, rindex: the place in characters.
template <bool kFromRight, bool kMust>
Value FindPart(Machine& m, const Value& self, const Args& args) {
  const Text what = TextArg(m, args, 0, "sub");
  const Window window = WindowOf(m, OfText(self), args);
  m.ChargeSearch(OfText(self).view(), what.view());
  if (!m.ok()) return Value();
  const std::string_view part = OfText(self).view().substr(window.begin, window.end - window.begin);
  const size_t at = !window.valid ? part.npos : kFromRight ? part.rfind(what.view()) : part.find(what.view());
  if (at != part.npos) return static_cast<int64_t>(CountChars(OfText(self).view().substr(0, window.begin + at)));
  return kMust ? m.Fail("the text does not contain what is looked for") : Value(int64_t{-1});
}

Value CountParts(Machine& m, const Value& self, const Args& args) {
  const Text what = TextArg(m, args, 0, "sub");
  const Window window = WindowOf(m, OfText(self), args);
  m.ChargeSearch(OfText(self).view(), what.view());
  if (!m.ok() || !window.valid) return int64_t{0};
  const std::string_view part = OfText(self).view().substr(window.begin, window.end - window.begin);
  if (what.empty()) return static_cast<int64_t>(CountChars(part)) + 1;
  int64_t n = 0;
  for (size_t at = part.find(what.view()); at != part.npos; at = part.find(what.view(), at + what.size())) ++n;
  return n;
}

Value ReplaceMethod(Machine& m, const Value& self, const Args& args) {
  const Text from = TextArg(m, args, 0, "old"), to = TextArg(m, args, 1, "new");
  const int64_t n = WholeArg(m, args, 2, "count", -1);
  m.ChargeSearch(OfText(self).view(), from.view());
  if (!m.ok()) return Value();
  auto out = Replace(OfText(self), from.view(), to, n, m.left());
  return out ? m.NewText(*std::move(out)) : m.Fail("a text grows too large");
}

Value JoinMethod(Machine& m, const Value& self, const Args& args) {
  std::vector<Value> items;
  if (args.pos[0].is_undefined()) return m.Fail("an undefined value cannot be joined");
  if (!m.Items(args.pos[0], &items)) return Value();
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    const Text* text = items[i].text();
    if (text == nullptr) return m.Fail(std::string("only texts can be joined, not ") + TypeName(items[i]));
    m.Charge(text->cost() + OfText(self).cost() + 32);
    if (!m.ok()) return Value();
    if (i > 0) out.Append(OfText(self));
    out.Append(*text);
  }
  return m.NewText(std::move(out));
}

Value FormatMethod(Machine& m, const Value& self, const Args& args) { return FormatBraces(m, OfText(self), args); }

// Whether the text is not empty and all of its characters are such; for cases, whether some are and none is not.
template <bool (*kIs)(char32_t)>
Value AllAre(Machine& m, const Value& self, const Args&) {
  const std::string_view text = OfText(self).view();
  m.Charge(static_cast<int64_t>(text.size() * 4));
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = DecodeUtf8(text, pos);
    if (!c.valid || !kIs(c.cp)) return false;
    pos += static_cast<size_t>(c.bytes);
  }
  return !text.empty();
}
bool IsLetterOrDigit(char32_t c) { return IsLetter(c) || IsDigit(c); }
bool IsAscii(char32_t c) { return c < 0x80; }

template <bool kUpper>
Value InCase(Machine& m, const Value& self, const Args&) {
  const std::string_view text = OfText(self).view();
  m.Charge(static_cast<int64_t>(text.size() * 4));
  bool any = false;
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = DecodeUtf8(text, pos);
    if (kUpper ? IsLower(c.cp) : IsUpper(c.cp)) return false;
    any |= kUpper ? IsUpper(c.cp) : IsLower(c.cp);
    pos += static_cast<size_t>(c.bytes);
  }
  return any;
}

// ljust (-1), rjust (1), center (0).
template <int kSide>
Value PadText(Machine& m, const Value& self, const Args& args) {
  const int64_t width = WholeArg(m, args, 0, "width", 0);
  const Text fill = Has(args, 1, "fillchar") ? TextArg(m, args, 1, "fillchar") : Text(" ");
  const auto n = static_cast<int64_t>(CountChars(OfText(self).view()));
  if (m.ok() && CountChars(fill.view()) != 1) return m.Fail("what fills a text must be one character");
  const int64_t missing = std::max<int64_t>(width - n, 0);
  m.Charge(static_cast<int64_t>(OfText(self).size()) + std::min(missing, kMaxWeight) * 4);
  if (!m.ok()) return Value();
  // As str.center() does, whose odd space is on the left of an odd width.
  const int64_t left = kSide > 0 ? missing : kSide < 0 ? 0 : missing / 2 + (missing & width & 1);
  Text out;
  for (int64_t i = 0; i < left; ++i) out.Append(fill);
  out.Append(OfText(self));
  for (int64_t i = left; i < missing; ++i) out.Append(fill);
  return m.NewText(std::move(out));
}

Value ZeroFill(Machine& m, const Value& self, const Args& args) {
  const int64_t width = WholeArg(m, args, 0, "width", 0);
  const Text& text = OfText(self);
  const int64_t missing = std::max<int64_t>(width - static_cast<int64_t>(CountChars(text.view())), 0);
  m.Charge(static_cast<int64_t>(text.size()) + std::min(missing, kMaxWeight));
  if (!m.ok()) return Value();
  const size_t sign = !text.empty() && (text.view()[0] == '-' || text.view()[0] == '+') ? 1 : 0;
  Text out = text.Part(0, sign);
  out.Append(std::string(static_cast<size_t>(missing), '0'), false);
  out.AppendPart(text, sign, text.size());
  return m.NewText(std::move(out));
}

template <bool kPrefix>
Value RemoveAffix(Machine& m, const Value& self, const Args& args) {
  const Text affix = TextArg(m, args, 0, "affix");
  const Text& text = OfText(self);
  const bool has = kPrefix ? text.view().starts_with(affix.view()) : text.view().ends_with(affix.view());
  if (!m.ok() || !has) return self;
  return m.NewText(kPrefix ? text.Part(affix.size(), text.size()) : text.Part(0, text.size() - affix.size()));
}

template <bool kFromRight>
Value Partition(Machine& m, const Value& self, const Args& args) {
  const Text at = TextArg(m, args, 0, "sep");
  if (!m.ok()) return Value();
  if (at.empty()) return m.Fail("a text cannot be split at an empty one");
  const Text& text = OfText(self);
  m.ChargeSearch(text.view(), at.view());
  m.Charge(text.cost());
  if (!m.ok()) return Value();
  const size_t found = kFromRight ? text.view().rfind(at.view()) : text.view().find(at.view());
  if (found == std::string_view::npos) {
    if (kFromRight) return m.NewSeq({Value(Text()), Value(Text()), self}, SeqKind::kTuple);
    return m.NewSeq({self, Value(Text()), Value(Text())}, SeqKind::kTuple);
  }
  const size_t end = found + at.size();
  return m.NewSeq({Value(text.Part(0, found)), Value(text.Part(found, end)), Value(text.Part(end, text.size()))},
                  SeqKind::kTuple);
}

constexpr Named kTextMethods[] = {
    {"upper", ChangeCase<Case::kUpper>},
    {"lower", ChangeCase<Case::kLower>},
    {"casefold", ChangeCase<Case::kLower>},
    {"swapcase", ChangeCase<Case::kSwap>},
    {"capitalize", ChangeCase<Case::kCapital>},
    {"title", ChangeCase<Case::kTitle>},
    {"strip", StripMethod<true, true>, 0, 1},
    {"lstrip", StripMethod<true, false>, 0, 1},
    {"rstrip", StripMethod<false, true>, 0, 1},
    {"split", SplitMethod<false>, 0, 2, {"sep", "maxsplit"}},
    {"rsplit", SplitMethod<true>, 0, 2, {"sep", "maxsplit"}},
    {"splitlines", SplitLines, 0, 1, {"keepends"}},
    {"startswith", Affix<true>, 1, 3},
    {"endswith", Affix<false>, 1, 3},
    {"find", FindPart<false, false>, 1, 3},
    {"rfind", FindPart<true, false>, 1, 3},
    {"index", FindPart<false, true>, 1, 3},
    {"rindex", FindPart<true, true>, 1, 3},
    {"count", CountParts, 1, 3},
    {"replace", ReplaceMethod, 2, 3},
    {"join", JoinMethod, 1, 1},
    {"format", FormatMethod, 0, kAnyNumber},
    {"isdigit", AllAre<IsDigit>},
    {"isdecimal", AllAre<IsDigit>},
    {"isnumeric", AllAre<IsDigit>},
    {"isalpha", AllAre<IsLetter>},
    {"isalnum", AllAre<IsLetterOrDigit>},
    {"isspace", AllAre<IsSpace>},
    {"isascii", AllAre<IsAscii>},
    {"isupper", InCase<true>},
    {"islower", InCase<false>},
    {"ljust", PadText<-1>, 1, 2},
    {"rjust", PadText<1>, 1, 2},
    {"center", PadText<0>, 1, 2},
    {"zfill", ZeroFill, 1, 1},
    {"removeprefix", RemoveAffix<true>, 1, 1},
    {"removesuffix", RemoveAffix<false>, 1, 1},
    {"partition", Partition<false>, 1, 1},
    {"rpartition", Partition<true>, 1, 1},
};

}  // namespace

const Named* FindTextMethod(std::string_view name) { return FindIn(kTextMethods, name); }

}  // namespace weir::jinja
