// SPDX-License-Identifier: Apache-2.0
// Functions that every template can call: Jinja2's, and the two that chat templates are given beside them.
#include "text/jinja/arguments.h"

namespace weir::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as in Jinja2's sandbox

Value Range(Machine& m, const Value&, const Args& args) {
  for (const Value& arg : args.pos) {
    if (!arg.is_int() && !arg.is_bool())
      return m.Fail(std::string("range() takes whole numbers, not ") + TypeName(arg));
  }
  Seq out;
  out.kind = SeqKind::kRange;
  out.start = args.pos.size() > 1 ? args.pos[0].integer() : 0;
  out.stop = args.pos[args.pos.size() > 1 ? 1 : 0].integer();
  out.step = args.pos.size() > 2 ? args.pos[2].integer() : 1;
  if (out.step == 0) return m.Fail("range() cannot have steps of 0");
  // 128 bits: the ends may be far apart.
  const __int128 span = static_cast<__int128>(out.stop) - out.start, step = out.step;
  const __int128 n = span == 0 || (span > 0) != (step > 0) ? 0 : (span + step - (step > 0 ? 1 : -1)) / step;
  if (n > kMaxRange) return m.Fail("range() of more than 100000 numbers");
  m.Charge(static_cast<int64_t>(n) * static_cast<int64_t>(sizeof(Value)));
  if (!m.ok()) return Value();
  for (int64_t i = 0; i < static_cast<int64_t>(n); ++i) out.items.emplace_back(out.start + i * out.step);
  out.weight = static_cast<int64_t>(n) * 8 + 8;
  return std::make_shared<const Seq>(std::move(out));
}

// The items that dict() and namespace() are made of: those of a dict, or pairs, and then the keywords.
bool Entries(Machine& m, const Args& args, Dict* out) {
  if (args.pos.size() > 1) {
    m.Fail("a dict is made of one value and keywords");
    return false;
  }
  if (!args.pos.empty()) {
    if (const Dict* dict = args.pos[0].dict()) {
      m.Charge(static_cast<int64_t>(dict->items.size() * 64));
      *out = *dict;
    } else {
      std::vector<Value> pairs;
      if (!m.Items(args.pos[0], &pairs)) return false;
      for (const Value& pair : pairs) {
        std::vector<Value> two;
        if (!m.Items(pair, &two)) return false;
        if (two.size() != 2 || two[0].dict() != nullptr ||
            (two[0].seq() != nullptr && two[0].seq()->kind == SeqKind::kList)) {
          m.Fail("a dict is made of pairs of a key and a value");
          return false;
        }
        m.ChargeLook(*out, two[0]);
        if (!m.ok()) return false;
        out->Put(two[0], two[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) {
    const Value key = Text(name, args.given_names);
    m.ChargeLook(*out, key);
    if (!m.ok()) return false;
    out->Put(key, value);
  }
  return m.ok();
}

Value MakeDictOf(Machine& m, const Value&, const Args& args) {
  Dict out;
  return Entries(m, args, &out) ? m.NewDict(std::move(out.items)) : Value();
}

Value MakeNamespace(Machine& m, const Value&, const Args& args) {
  Dict entries;
  if (!Entries(m, args, &entries)) return Value();
  Namespace out;
  for (const auto& [key, value] : entries.items) {
    const Text* name = key.text();
    if (name == nullptr) return m.Fail("the names of a namespace are strings");
    if (name->view().starts_with("_")) return m.Fail("a namespace has no names that begin with an underscore");
    out.vars.emplace_back(name->bytes(), value);
  }
  return m.NewNamespace(std::move(out));
}

// joiner(): nothing at first, and from then on the separator.
Value MakeJoiner(Machine& m, const Value&, const Args& args) {
  const Value* separator = args.Find(0, "sep");
  const Value state = m.NewIter({separator != nullptr ? *separator : Value::Words(", ")});
  return m.NewFunction(
      "joiner",
      [](Machine&, const Value& self, const Args&) -> Value {
        Iter* const used = self.iter();
        if (used->at++ == 0) return Value::Words("");
        return used->items[0];
      },
      state);
}

Value RaiseException(Machine& m, const Value&, const Args& args) {
  const Text message = args.pos.empty() ? Text() : m.StrOf(args.pos[0]);
  return m.Fail("the template refuses this conversation: " + message.bytes());
}

Value StrftimeNow(Machine& m, const Value&, const Args& args) {
  const Text format = TextArg(m, args, 0, "format");
  if (!m.ok()) return Value();
  if (format.size() > 256) return m.Fail("a date's format of more than 256 bytes");
  std::string out;
  char part[512];
  // One directive at a time: a result that is empty is then no error, and none is longer than the buffer.
  const std::string_view text = format.view();
  for (size_t pos = 0; pos < text.size();) {
    if (text[pos] != '%') {
      out += text[pos++];
      continue;
    }
    size_t end = pos + 1;
    while (end < text.size() && (text[end] == '-' || text[end] == '_' || text[end] == '^' || text[end] == '#')) ++end;
    const std::string directive(text.substr(pos, end + 1 - pos));
    pos = std::min(end + 1, text.size());
    if (directive.size() < 2 || end >= text.size()) {
      out += directive;
    } else if (directive.back() == 'f') {
      out += "000000";  // no fractions of a second are told
    } else {
      out.append(part, std::strftime(part, sizeof(part), directive.c_str(), &m.now()));
    }
  }
  return m.NewText(Text(std::move(out), format.AnyGiven()));
}

constexpr Named kGlobals[] = {
    {"range", Range, 1, 3},
    {"dict", MakeDictOf, 0, kAnyNumber},
    {"namespace", MakeNamespace, 0, kAnyNumber},
    {"joiner", MakeJoiner, 0, 1, {"sep"}},
    {"raise_exception", RaiseException, 1, 1, {"message"}},
    {"strftime_now", StrftimeNow, 1, 1, {"format"}},
};

}  // namespace

const Named* FindGlobal(std::string_view name) { return FindIn(kGlobals, name); }

}  // namespace weir::jinja
