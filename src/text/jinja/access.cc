// SPDX-License-Identifier: Apache-2.0
// Attributes, items and slices. A dict's methods come before its keys in `a.items` and behind them in `a['items']`, as
// in Jinja2.
#include <algorithm>
#include <charconv>

#include "text/jinja/letters.h"
#include "text/jinja/machine.h"

namespace weir::jinja {
namespace {

Value LoopAttribute(Machine& machine, Loop& loop, const Value& self, std::string_view name) {
  if (name == "index") return loop.index0 + 1;
  if (name == "index0") return loop.index0;
  if (name == "first") return loop.index0 == 0;
  if (name == "last") return !loop.Peek();
  if (name == "length") return loop.Length();
  if (name == "revindex") return loop.Length() - loop.index0;
  if (name == "revindex0") return loop.Length() - loop.index0 - 1;
  if (name == "previtem") return loop.before.value_or(Value());
  if (name == "nextitem") return loop.Peek() ? *loop.after : Value();
  if (name == "depth") return int64_t{1};
  if (name == "depth0") return int64_t{0};
  if (name == "cycle") {
    return machine.NewFunction(
        "cycle",
        [](Machine& m, const Value& of, const Args& args) {
          if (args.pos.empty()) return m.Fail("loop.cycle() needs values");
          return args.pos[static_cast<size_t>(of.loop()->index0) % args.pos.size()];
        },
        self);
  }
  if (name == "changed") {
    return machine.NewFunction(
        "changed",
        [](Machine& m, const Value& of, const Args& args) -> Value {
          Loop& state = *of.loop();
          const bool same = state.changed && state.changed->size() == args.pos.size() &&
                            std::equal(args.pos.begin(), args.pos.end(), state.changed->begin(),
                                       [&](const Value& a, const Value& b) { return m.Same(a, b); });
          if (!same) state.changed = args.pos;
          return !same;
        },
        self);
  }
  return Value();
}

// The method of a value; nullptr if it has none of that name.
const Named* Method(const Value& of, std::string_view name) {
  if (of.text() != nullptr) return FindTextMethod(name);
  if (of.dict() != nullptr) return FindDictMethod(name);
  const Seq* seq = of.seq();
  if (seq != nullptr && (seq->kind == SeqKind::kList || seq->kind == SeqKind::kTuple)) return FindListMethod(name);
  return nullptr;
}

// Where a slice begins and ends, as Python's slice.indices().
struct Bounds {
  int64_t start, stop, step;
};

bool IsIndex(const Value& value) { return value.is_none() || value.is_int() || value.is_bool(); }

Bounds BoundsOf(const Value& start, const Value& stop, int64_t step, int64_t n) {
  const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
  const auto at = [&](const Value& value, int64_t otherwise) {
    if (value.is_none()) return otherwise;
    int64_t i = value.integer();
    if (i < 0) i = i < -n ? low : i + n;  // no overflow: -n is the least that n is added to
    return std::clamp(i, low, high);
  };
  return {at(start, step < 0 ? high : low), at(stop, step < 0 ? low : high), step};
}

}  // namespace

Value Machine::Attribute(const Value& of, std::string_view name) {
  if (of.is_undefined()) return Fail("an undefined value has no '" + std::string(name) + "'");
  if (const Named* method = Method(of, name)) return NewFunction(*method, of);
  if (const Seq* seq = of.seq(); seq != nullptr && seq->is_group) {
    if (name == "grouper") return seq->items[0];
    if (name == "list") return seq->items[1];
  }
  if (const Dict* dict = of.dict()) {
    Charge(static_cast<int64_t>(dict->items.size() * (2 + name.size() / 32)));
    const Value* value = dict->Find(name);
    return value != nullptr ? *value : Value();
  }
  if (Namespace* space = of.space()) {
    Charge(static_cast<int64_t>(space->vars.size() * (2 + name.size() / 32)));
    const Value* value = space->Find(name);
    return value != nullptr ? *value : Value();
  }
  if (Loop* loop = of.loop()) return LoopAttribute(*this, *loop, of, name);
  if (const Callable* call = of.call(); call != nullptr && call->macro != nullptr && name == "name") {
    return Value::Words(call->name);
  }
  return Value();
}

Value Machine::Item(const Value& of, const Value& key) {
  if (of.is_undefined()) return Fail("an undefined value has no items");
  if (const Dict* dict = of.dict()) {
    if (const Value* value = Look(*dict, key)) return *value;
  } else if (key.is_int() || key.is_bool()) {
    const int64_t at = key.integer();
    if (const Seq* seq = of.seq(); seq != nullptr && seq->kind <= SeqKind::kRange) {
      const auto n = static_cast<int64_t>(seq->items.size());
      const int64_t place = at < 0 ? at + n : at;
      return place >= 0 && place < n ? seq->items[static_cast<size_t>(place)] : Value();
    }
    if (const Text* text = of.text()) {
      Charge(static_cast<int64_t>(text->size()));
      const auto n = static_cast<int64_t>(CountChars(text->view()));
      const int64_t place = at < 0 ? at + n : at;
      if (place < 0 || place >= n) return Value();
      const size_t begin = CharPos(text->view(), static_cast<size_t>(place));
      return NewText(text->Part(begin, begin + CharBytes(text->view(), begin)));
    }
  }
  if (const Text* name = key.text(); ok() && name != nullptr && of.dict() == nullptr) {
    return Attribute(of, name->view());
  }
  if (const Text* name = key.text(); ok() && name != nullptr) {
    if (const Named* method = FindDictMethod(name->view())) return NewFunction(*method, of);
  }
  return Value();
}

Value Machine::Slice(const Value& of, const Value& start, const Value& stop, const Value& step) {
  const Text* text = of.text();
  const Seq* seq = of.seq();
  // As with items that do not exist, what has no slices has an undefined one.
  if (text == nullptr && (seq == nullptr || seq->kind > SeqKind::kRange)) return Value();
  if (!IsIndex(start) || !IsIndex(stop) || !IsIndex(step)) return Value();
  const int64_t by = step.is_none() ? 1 : step.integer();
  if (by == 0) return Fail("a slice cannot have steps of 0");
  std::vector<size_t> places;  // of characters; the last is the end of the text
  if (text != nullptr) {
    Charge(static_cast<int64_t>(text->size() * sizeof(size_t)));
    if (!ok()) return Value();
    for (size_t pos = 0; pos < text->size(); pos += CharBytes(text->view(), pos)) places.push_back(pos);
    places.push_back(text->size());
  }
  const auto n = static_cast<int64_t>(text != nullptr ? places.size() - 1 : seq->items.size());
  const Bounds bounds = BoundsOf(start, stop, by, n);
  Text part;
  std::vector<Value> items;
  if (text != nullptr && by == 1) {
    if (bounds.start < bounds.stop) {
      part = text->Part(places[static_cast<size_t>(bounds.start)], places[static_cast<size_t>(bounds.stop)]);
    }
    return NewText(std::move(part));
  }
  for (int64_t i = bounds.start; by > 0 ? i < bounds.stop : i > bounds.stop;) {
    const auto place = static_cast<size_t>(i);
    if (text != nullptr) {
      part.AppendPart(*text, places[place], places[place + 1]);
    } else {
      items.push_back(seq->items[place]);
    }
    // A step beyond the bounds ends it; adding it could overflow.
    if (by > 0 ? by >= bounds.stop - i : by <= bounds.stop - i) break;
    i += by;
  }
  if (text != nullptr) return NewText(std::move(part));
  return NewSeq(std::move(items), seq->kind == SeqKind::kTuple ? SeqKind::kTuple : SeqKind::kList);
}

Value Machine::Path(const Value& of, const Value& path, const Value* otherwise) {
  Value at = of;
  const auto step = [&](const Value& key) {
    Charge(64);
    at = Item(at, key);
    if (at.is_undefined() && otherwise != nullptr) at = *otherwise;
  };
  const Text* text = path.text();
  if (text == nullptr) {
    step(path);
    return at;
  }
  std::string_view rest = text->view();
  while (ok()) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    const bool is_number = error == std::errc() && end == part.data() + part.size() && part[0] != '-';
    step(is_number ? Value(number) : Value::Words(std::string(part)));
    if (dot == rest.size()) break;
    rest.remove_prefix(dot + 1);
  }
  return at;
}

}  // namespace weir::jinja
