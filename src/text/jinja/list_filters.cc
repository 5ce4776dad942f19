// SPDX-License-Identifier: Apache-2.0
// Filters over lists and dicts. Where Jinja2 makes a generator, so does this: it can be read once, has no length, and
// is always true.
#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/letters.h"

namespace weir::jinja {
namespace {

Value LengthFilter(Machine& m, const Value& self, const Args&) {
  if (self.is_undefined()) return int64_t{0};
  if (const Text* text = self.text()) {
    m.Charge(static_cast<int64_t>(text->size()));
    return static_cast<int64_t>(CountChars(text->view()));
  }
  if (const Seq* seq = self.seq()) return static_cast<int64_t>(seq->items.size());
  if (const Dict* dict = self.dict()) return static_cast<int64_t>(dict->items.size());
  if (Loop* loop = self.loop()) return loop->Length();
  return m.Fail(std::string(TypeName(self)) + " has no length");
}

Value JoinFilter(Machine& m, const Value& self, const Args& args) {
  const Value* separator = args.Find(0, "d");
  const Text between = separator != nullptr ? m.StrOf(*separator) : Text();
  const Value* attribute = args.Find(1, "attribute");
  std::vector<Value> items;
  if (!m.Items(self, &items)) return Value();
  Text out;
  for (size_t i = 0; m.ok() && i < items.size(); ++i) {
    const bool by_path = attribute != nullptr && !attribute->is_none();
    const Text text = m.StrOf(by_path ? m.Path(items[i], *attribute, nullptr) : items[i]);
    m.Charge(text.cost() + between.cost() + 32);
    if (!m.ok()) return Value();
    if (i > 0) out.Append(between);
    out.Append(text);
  }
  return m.NewText(std::move(out));
}

Value FirstFilter(Machine& m, const Value& self, const Args&) {
  if (Iter* iter = self.iter()) return iter->at < iter->items.size() ? iter->items[iter->at++] : Value();
  if (const Text* text = self.text()) {
    return text->empty() ? Value() : Value(text->Part(0, CharBytes(text->view(), 0)));
  }
  std::vector<Value> items;
  if (!m.Items(self, &items)) return Value();
  return items.empty() ? Value() : items.front();
}

Value LastFilter(Machine& m, const Value& self, const Args&) {
  if (self.iter() != nullptr || self.loop() != nullptr) {
    return m.Fail(std::string(TypeName(self)) + " cannot be read from its end");
  }
  std::vector<Value> items;
  if (!m.Items(self, &items)) return Value();
  return items.empty() ? Value() : items.back();
}

Value ListFilter(Machine& m, const Value& self, const Args&) {
  std::vector<Value> items;
  if (!m.Items(self, &items)) return Value();
  return m.NewSeq(std::move(items));
}

Value ReverseFilter(Machine& m, const Value& self, const Args&) {
  if (self.text() != nullptr) return m.Slice(self, None{}, None{}, int64_t{-1});
  std::vector<Value> items;
  if (!m.Items(self, &items)) return Value();
  std::reverse(items.begin(), items.end());
  // A generator cannot be read from its end, so it becomes a list first.
  return self.iter() != nullptr || self.loop() != nullptr ? m.NewSeq(std::move(items)) : m.NewIter(std::move(items));
}

Value ItemsFilter(Machine& m, const Value& self, const Args& args) {
  if (self.is_undefined()) return m.NewIter({});
  if (self.dict() == nullptr) return m.Fail(std::string("only a dict has items, not ") + TypeName(self));
  std::vector<Value> items;
  if (!m.Items(FindDictMethod("items")->function(m, self, args), &items)) return Value();
  return m.NewIter(std::move(items));
}

// What is compared: the value at `attribute`, without its case if that does not matter.
class KeyOf {
 public:
  KeyOf(Machine& m, const Value* attribute, bool case_sensitive) : m_(m), case_sensitive_(case_sensitive) {
    if (attribute == nullptr || attribute->is_none()) return;
    const Text* text = attribute->text();
    m.Charge(WeightOf(*attribute) * 16);
    if (!m.ok()) return;
    if (text == nullptr) {
      paths_.push_back(*attribute);
      return;
    }
    for (std::string_view rest = text->view();;) {  // "a,b": one after the other
      const size_t comma = std::min(rest.find(','), rest.size());
      paths_.push_back(Value::Words(std::string(rest.substr(0, comma))));
      if (comma == rest.size()) break;
      rest.remove_prefix(comma + 1);
    }
  }
  Value operator()(const Value& item) const {
    if (paths_.empty()) return Plain(item);
    if (paths_.size() == 1) return Plain(m_.Path(item, paths_[0], nullptr));
    std::vector<Value> keys;
    for (const Value& path : paths_) keys.push_back(Plain(m_.Path(item, path, nullptr)));
    return m_.NewSeq(std::move(keys));
  }

 private:
  Value Plain(Value value) const {
    if (case_sensitive_ || value.text() == nullptr) return value;
    m_.Charge(static_cast<int64_t>(value.text()->size()) * 8);
    return WithCase(*value.text(), Case::kLower);
  }
  Machine& m_;
  bool case_sensitive_;
  std::vector<Value> paths_;
};

// A stable sort by keys; false after an error. `same_first`: keys that are equal need no order (Jinja2's `sort`
// compares lists of keys, which does that).
bool SortByKey(Machine& m, const KeyOf& key_of, bool backwards, bool same_first, std::vector<Value>* items) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : *items) keyed.emplace_back(key_of(item), std::move(item));
  m.Charge(static_cast<int64_t>(keyed.size() * 64));
  if (!m.ok()) return false;
  const bool all_numbers = std::all_of(keyed.begin(), keyed.end(), [](const auto& k) { return k.first.is_number(); });
  const auto less = [&](const auto& a, const auto& b) {
    // Merging needs an order: after an error, or with a NaN, everything is equal.
    if (!m.ok()) return false;
    const Value &x = backwards ? b.first : a.first, &y = backwards ? a.first : b.first;
    if (all_numbers) return x.number() < y.number();
    return !(same_first && m.Same(x, y)) && m.Less(x, y);
  };
  std::stable_sort(keyed.begin(), keyed.end(), less);
  items->clear();
  for (auto& [key, item] : keyed) items->push_back(std::move(item));
  return m.ok();
}

Value SortFilter(Machine& m, const Value& self, const Args& args) {
  std::vector<Value> items;
  if (!m.Items(self, &items)) return Value();
  const KeyOf key_of(m, args.Find(2, "attribute"), FlagArg(args, 1, "case_sensitive", false));
  if (!SortByKey(m, key_of, FlagArg(args, 0, "reverse", false), true, &items)) return Value();
  return m.NewSeq(std::move(items));
}

Value DictSort(Machine& m, const Value& self, const Args& args) {
  const Dict* dict = self.dict();
  if (dict == nullptr) return m.Fail(std::string("only a dict can be sorted by its keys, not ") + TypeName(self));
  const Text by = Has(args, 1, "by") ? TextArg(m, args, 1, "by") : Text("key");
  if (m.ok() && by.view() != "key" && by.view() != "value") return m.Fail("a dict is sorted by 'key' or 'value'");
  std::vector<Value> items;
  for (const auto& [key, value] : dict->items) items.push_back(m.NewSeq({key, value}, SeqKind::kTuple));
  const Value place = by.view() == "key" ? int64_t{0} : int64_t{1};
  const KeyOf key_of(m, &place, FlagArg(args, 0, "case_sensitive", false));
  if (!SortByKey(m, key_of, FlagArg(args, 2, "reverse", false), false, &items)) return Value();
  return m.NewSeq(std::move(items));
}

Value UniqueFilter(Machine& m, const Value& self, const Args& args) {
  std::vector<Value> items, keys, out;
  if (!m.Items(self, &items)) return Value();
  const KeyOf key_of(m, args.Find(1, "attribute"), FlagArg(args, 0, "case_sensitive", false));
  for (Value& item : items) {
    const Value key = key_of(item);
    const bool seen = std::any_of(keys.begin(), keys.end(), [&](const Value& one) { return m.Same(one, key); });
    if (!m.ok()) return Value();
    if (seen) continue;
    keys.push_back(key);
    out.push_back(std::move(item));
  }
  return m.NewIter(std::move(out));
}

template <bool kMost>
Value Extreme(Machine& m, const Value& self, const Args& args) {
  std::vector<Value> items;
  if (!m.Items(self, &items)) return Value();
  const KeyOf key_of(m, args.Find(1, "attribute"), FlagArg(args, 0, "case_sensitive", false));
  if (items.empty()) return Value();
  size_t best = 0;
  Value best_key = key_of(items[0]);
  for (size_t i = 1; m.ok() && i < items.size(); ++i) {
    Value key = key_of(items[i]);
    if (!(kMost ? m.Less(best_key, key) : m.Less(key, best_key))) continue;
    best = i;
    best_key = std::move(key);
  }
  return m.ok() ? items[best] : Value();
}

Value SumFilter(Machine& m, const Value& self, const Args& args) {
  std::vector<Value> items;
  if (!m.Items(self, &items)) return Value();
  const Value *attribute = args.Find(0, "attribute"), *start = args.Find(1, "start");
  Value out = start != nullptr ? *start : Value(int64_t{0});
  if (out.text() != nullptr) return m.Fail("texts are joined, not summed");
  for (const Value& item : items) {
    const bool by_path = attribute != nullptr && !attribute->is_none();
    out = m.Arithmetic("+", out, by_path ? m.Path(item, *attribute, nullptr) : item);
    if (!m.ok()) return Value();
  }
  return out;
}

Value MapFilter(Machine& m, const Value& self, const Args& args) {
  std::vector<Value> items, out;
  if (!Truth(self)) return m.NewIter({});
  const Value *attribute = nullptr, *otherwise = nullptr;
  for (const auto& [name, value] : args.named) {
    if (name == "attribute") attribute = &value;
    if (name == "default") otherwise = &value;
  }
  if (args.pos.empty()) {
    if (attribute == nullptr) return m.Fail("filter 'map' needs a filter's name or an attribute");
    if (args.named.size() > (otherwise != nullptr ? 2U : 1U)) return m.Fail("filter 'map' has an unknown argument");
    if (!m.Items(self, &items)) return Value();
    for (const Value& item : items) {
      out.push_back(m.Path(item, *attribute, otherwise));
      if (!m.ok()) return Value();
    }
    return m.NewIter(std::move(out));
  }
  const Text* name = args.pos[0].text();
  const Named* filter = name != nullptr ? FindFilter(name->view()) : nullptr;
  if (filter == nullptr) return m.Fail("filter 'map' is given a filter that does not exist");
  if (!m.Items(self, &items)) return Value();
  Args rest;
  rest.pos = {args.pos.begin() + 1, args.pos.end()};
  rest.named = args.named;
  for (const Value& item : items) {
    out.push_back(m.Apply(*filter, "filter", item, rest));
    if (!m.ok()) return Value();
  }
  return m.NewIter(std::move(out));
}

// select, reject, selectattr, rejectattr: items for which a test holds, or does not; without a test, the true ones.
template <bool kKeep, bool kByAttribute>
Value Choose(Machine& m, const Value& self, const Args& args) {
  if (!Truth(self)) return m.NewIter({});
  std::vector<Value> items, out;
  const size_t at = kByAttribute ? 1 : 0;
  if (args.pos.size() < at) return m.Fail("the name of an attribute is missing");
  const Named* test = nullptr;
  if (args.pos.size() > at) {
    const Text* name = args.pos[at].text();
    test = name != nullptr ? FindTest(name->view()) : nullptr;
    if (test == nullptr) return m.Fail("there is no test of the name that is given");
  }
  if (!m.Items(self, &items)) return Value();
  Args rest;
  if (test != nullptr) rest.pos = {args.pos.begin() + static_cast<ptrdiff_t>(at) + 1, args.pos.end()};
  rest.named = args.named;
  for (Value& item : items) {
    const Value subject = kByAttribute ? m.Path(item, args.pos[0], nullptr) : item;
    m.Charge(64);
    const bool holds = Truth(test != nullptr ? m.Apply(*test, "test", subject, rest) : subject);
    if (!m.ok()) return Value();
    if (holds == kKeep) out.push_back(std::move(item));
  }
  return m.NewIter(std::move(out));
}

Value BatchFilter(Machine& m, const Value& self, const Args& args) {
  std::vector<Value> items, out, row;
  const int64_t n = WholeArg(m, args, 0, "linecount", 1);
  const Value* fill = args.Find(1, "fill_with");
  if (!m.Items(self, &items)) return Value();
  // Jinja2 fills the first row without an end then.
  if (n < 1) return m.Fail("rows must have at least 1 item");
  for (Value& item : items) {
    if (static_cast<int64_t>(row.size()) == n) out.push_back(m.NewSeq(std::exchange(row, {})));
    row.push_back(std::move(item));
  }
  if (!row.empty()) {
    if (fill != nullptr && !fill->is_none()) {
      const int64_t missing = n - static_cast<int64_t>(row.size());
      m.Charge(std::min(missing, kMaxWeight / 64) * 64);
      if (!m.ok()) return Value();
      row.insert(row.end(), static_cast<size_t>(missing), *fill);
    }
    out.push_back(m.NewSeq(std::move(row)));
  }
  return m.NewIter(std::move(out));
}

Value SliceFilter(Machine& m, const Value& self, const Args& args) {
  std::vector<Value> items, out;
  const int64_t n = WholeArg(m, args, 0, "slices", 1);
  const Value* fill = args.Find(1, "fill_with");
  if (!m.Items(self, &items)) return Value();
  if (n == 0) return m.Fail("division by zero");
  m.Charge(std::clamp<int64_t>(n, 0, kMaxWeight / 64) * 64);
  if (!m.ok()) return Value();
  const auto length = static_cast<int64_t>(items.size());
  const int64_t each = length / n, longer = length % n;
  size_t at = 0;
  for (int64_t i = 0; i < n; ++i) {
    std::vector<Value> column;
    for (int64_t k = 0; k < each + (i < longer ? 1 : 0); ++k) column.push_back(items[at++]);
    if (fill != nullptr && !fill->is_none() && i >= longer) column.push_back(*fill);
    out.push_back(m.NewSeq(std::move(column)));
  }
  return m.NewIter(std::move(out));
}

Value GroupBy(Machine& m, const Value& self, const Args& args) {
  const Value* attribute = args.Find(0, "attribute");
  const Value* otherwise = args.Find(1, "default");
  if (attribute == nullptr) return m.Fail("filter 'groupby' needs an attribute");
  std::vector<Value> items;
  if (!m.Items(self, &items)) return Value();
  std::vector<Value> pairs;  // (key, item)
  for (const Value& item : items) {
    pairs.push_back(m.NewSeq({m.Path(item, *attribute, otherwise), item}));
    if (!m.ok()) return Value();
  }
  const Value place = int64_t{0};
  const KeyOf key_of(m, &place, FlagArg(args, 2, "case_sensitive", false));
  if (!SortByKey(m, key_of, false, false, &pairs)) return Value();
  std::vector<Value> out;
  for (size_t i = 0; m.ok() && i < pairs.size();) {
    std::vector<Value> group;
    const Value key = key_of(pairs[i]), shown = pairs[i].seq()->items[0];
    for (; i < pairs.size() && m.Same(key_of(pairs[i]), key); ++i) group.push_back(pairs[i].seq()->items[1]);
    if (!m.ok()) return Value();
    const Value pair = m.NewSeq({shown, m.NewSeq(std::move(group))}, SeqKind::kTuple);
    if (!m.ok()) return Value();
    Seq named = *pair.seq();
    named.is_group = true;
    out.emplace_back(std::make_shared<const Seq>(std::move(named)));
  }
  return m.NewSeq(std::move(out));
}

Value AttrFilter(Machine& m, const Value& self, const Args& args) {
  const Text name = TextArg(m, args, 0, "name");
  // Attributes only: a dict's keys are none.
  return m.ok() && self.dict() == nullptr ? m.Attribute(self, name.view()) : Value();
}

Value DefaultFilter(Machine&, const Value& self, const Args& args) {
  if (!self.is_undefined() && !(FlagArg(args, 1, "boolean", false) && !Truth(self))) return self;
  const Value* otherwise = args.Find(0, "default_value");
  return otherwise != nullptr ? *otherwise : Value::Words("");
}

constexpr Named kListFilters[] = {
    {"length", LengthFilter},
    {"count", LengthFilter},
    {"join", JoinFilter, 0, 2, {"d", "attribute"}},
    {"first", FirstFilter},
    {"last", LastFilter},
    {"list", ListFilter},
    {"reverse", ReverseFilter},
    {"items", ItemsFilter},
    {"sort", SortFilter, 0, 3, {"reverse", "case_sensitive", "attribute"}},
    {"dictsort", DictSort, 0, 3, {"case_sensitive", "by", "reverse"}},
    {"unique", UniqueFilter, 0, 2, {"case_sensitive", "attribute"}},
    {"max", Extreme<true>, 0, 2, {"case_sensitive", "attribute"}},
    {"min", Extreme<false>, 0, 2, {"case_sensitive", "attribute"}},
    {"sum", SumFilter, 0, 2, {"attribute", "start"}},
    {"map", MapFilter, 0, kAnyNumber},
    {"select", Choose<true, false>, 0, kAnyNumber},
    {"reject", Choose<false, false>, 0, kAnyNumber},
    {"selectattr", Choose<true, true>, 0, kAnyNumber},
    {"rejectattr", Choose<false, true>, 0, kAnyNumber},
    {"batch", BatchFilter, 1, 2, {"linecount", "fill_with"}},
    {"slice", SliceFilter, 1, 2, {"slices", "fill_with"}},
    {"groupby", GroupBy, 1, 3, {"attribute", "default", "case_sensitive"}},
    {"attr", AttrFilter, 1, 1, {"name"}},
    {"default", DefaultFilter, 0, 2, {"default_value", "boolean"}},
    {"d", DefaultFilter, 0, 2, {"default_value", "boolean"}},
};

}  // namespace

std::span<const Named> ListFilters() { return kListFilters; }

}  // namespace weir::jinja
