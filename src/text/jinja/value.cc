// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/value.h"

#include <fmt/core.h>
#include <algorithm>
#include <cmath>

#include "text/jinja/callable.h"
#include "text/jinja/letters.h"
#include "text/jinja/loop.h"
#include "text/jinja/numbers.h"

namespace weir::jinja {
namespace {

bool SameItems(const Seq& a, const Seq& b) {
  // Python compares a list with a list and a tuple with a tuple only.
  if ((a.kind == SeqKind::kTuple) != (b.kind == SeqKind::kTuple)) return false;
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), Equal);
}

bool SameDicts(const Dict& a, const Dict& b) {
  if (a.items.size() != b.items.size()) return false;
  return std::all_of(a.items.begin(), a.items.end(), [&](const auto& item) {
    const Value* other = b.Find(item.first);
    return other != nullptr && Equal(item.second, *other);
  });
}

// repr() of what is neither a text nor holds other values.
std::string Plain(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (value.is_bool()) return value.boolean() ? "True" : "False";
  if (value.is_int()) return std::to_string(value.integer());
  if (value.is_float()) return FloatText(value.number());
  // Python prints addresses here, which no template can mean.
  if (value.iter() != nullptr) return "<generator>";
  if (value.space() != nullptr) return "<Namespace>";
  if (value.loop() != nullptr) return "<LoopContext>";
  return "<function " + value.call()->name + ">";
}

void AppendRepr(const Value& value, Text* out);

void ReprItems(const std::vector<Value>& items, Text* out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->Append(", ", false);
    AppendRepr(items[i], out);
  }
}

void ReprSeq(const Seq& seq, Text* out) {
  switch (seq.kind) {
    case SeqKind::kRange:
      out->Append(seq.step == 1 ? fmt::format("range({}, {})", seq.start, seq.stop)
                                : fmt::format("range({}, {}, {})", seq.start, seq.stop, seq.step),
                  false);
      return;
    case SeqKind::kKeys:
      out->Append("dict_keys([", false);
      break;
    case SeqKind::kValues:
      out->Append("dict_values([", false);
      break;
    case SeqKind::kItems:
      out->Append("dict_items([", false);
      break;
    case SeqKind::kTuple:
      out->Append("(", false);
      break;
    case SeqKind::kList:
      out->Append("[", false);
      break;
  }
  ReprItems(seq.items, out);
  if (seq.kind == SeqKind::kTuple) {
    out->Append(seq.items.size() == 1 ? ",)" : ")", false);
  } else {
    out->Append(seq.kind == SeqKind::kList ? "]" : "])", false);
  }
}

// One text that all levels write to: copying what is inside at every level would cost the depth times as much.
void AppendRepr(const Value& value, Text* out) {
  if (const Text* text = value.text()) {
    out->Append(Quoted(*text));
  } else if (const Seq* seq = value.seq()) {
    ReprSeq(*seq, out);
  } else if (const Dict* dict = value.dict()) {
    out->Append("{", false);
    for (size_t i = 0; i < dict->items.size(); ++i) {
      if (i > 0) out->Append(", ", false);
      AppendRepr(dict->items[i].first, out);
      out->Append(": ", false);
      AppendRepr(dict->items[i].second, out);
    }
    out->Append("}", false);
  } else {
    out->Append(Plain(value), false);
  }
}

}  // namespace

const Value* Dict::Find(std::string_view key) const {
  for (const auto& [k, v] : items) {
    if (const Text* text = k.text(); text != nullptr && text->view() == key) return &v;
  }
  return nullptr;
}

const Value* Dict::Find(const Value& key) const {
  if (const Text* text = key.text(); text != nullptr) return Find(text->view());
  for (const auto& [k, v] : items) {
    if (Equal(k, key)) return &v;
  }
  return nullptr;
}

void Dict::Put(Value key, Value value) {
  depth = std::max({depth, DepthOf(key) + 1, DepthOf(value) + 1});
  weight = std::min(kMaxWeight, weight + WeightOf(key) + WeightOf(value) + static_cast<int64_t>(items.size()));
  if (const Value* there = Find(key); there != nullptr) {
    *const_cast<Value*>(there) = std::move(value);
  } else {
    items.emplace_back(std::move(key), std::move(value));
  }
}

const Value* Namespace::Find(std::string_view name) const {
  for (const auto& [key, value] : vars) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Namespace::Put(std::string_view name, Value value) {
  if (const Value* there = Find(name); there != nullptr) {
    *const_cast<Value*>(there) = std::move(value);
  } else {
    vars.emplace_back(std::string(name), std::move(value));
  }
}

int DepthOf(const Value& value) {
  if (const Seq* seq = value.seq()) return seq->depth;
  if (const Dict* dict = value.dict()) return dict->depth;
  if (const Iter* iter = value.iter()) return iter->depth;
  if (const Loop* loop = value.loop()) return loop->depth_of_items + 1;
  if (const Callable* call = value.call()) return DepthOf(call->self) + 1;
  return 0;
}

int64_t WeightOf(const Value& value) {
  if (const Text* text = value.text()) return text->cost() + 8;
  if (const Seq* seq = value.seq()) return seq->weight;
  if (const Dict* dict = value.dict()) return dict->weight;
  if (const Iter* iter = value.iter()) return iter->weight;
  return 8;
}

Value MakeSeq(std::vector<Value> items, SeqKind kind) {
  auto out = std::make_shared<Seq>();
  for (const Value& item : items) {
    out->depth = std::max(out->depth, DepthOf(item) + 1);
    out->weight = std::min(kMaxWeight, out->weight + WeightOf(item));
  }
  out->items = std::move(items);
  out->kind = kind;
  return std::shared_ptr<const Seq>(std::move(out));
}

Value MakeIter(std::vector<Value> items) {
  auto out = std::make_shared<Iter>();
  for (const Value& item : items) {
    out->depth = std::max(out->depth, DepthOf(item) + 1);
    out->weight = std::min(kMaxWeight, out->weight + WeightOf(item));
  }
  out->items = std::move(items);
  return out;
}

Value MakeDict(std::vector<std::pair<Value, Value>> items) {
  auto out = std::make_shared<Dict>();
  int64_t n = 0;
  for (const auto& [k, v] : items) {
    out->depth = std::max({out->depth, DepthOf(k) + 1, DepthOf(v) + 1});
    out->weight = std::min(kMaxWeight, out->weight + WeightOf(k) + WeightOf(v) + n++);
  }
  out->items = std::move(items);
  return std::shared_ptr<const Dict>(std::move(out));
}

bool Truth(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_float()) return value.number() != 0;
  if (value.is_number()) return value.integer() != 0;
  if (const Text* text = value.text()) return !text->empty();
  if (const Seq* seq = value.seq()) return !seq->items.empty();
  if (const Dict* dict = value.dict()) return !dict->items.empty();
  return true;
}

bool Equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return a.number() == b.number();
    return a.integer() == b.integer();
  }
  if (const Text* x = a.text(), *y = b.text(); x != nullptr && y != nullptr) return x->view() == y->view();
  if (const Seq* x = a.seq(), *y = b.seq(); x != nullptr && y != nullptr) return SameItems(*x, *y);
  if (const Dict* x = a.dict(), *y = b.dict(); x != nullptr && y != nullptr) return SameDicts(*x, *y);
  if (a.is_undefined() && b.is_undefined()) return true;
  if (a.is_none() && b.is_none()) return true;
  if (a.space() != nullptr && a.space() == b.space()) return true;
  if (a.iter() != nullptr && a.iter() == b.iter()) return true;
  if (a.loop() != nullptr && a.loop() == b.loop()) return true;
  return a.call() != nullptr && a.call() == b.call();
}

const char* TypeName(const Value& value) {
  if (value.is_undefined()) return "an undefined value";
  if (value.is_none()) return "None";
  if (value.is_bool()) return "bool";
  if (value.is_int()) return "int";
  if (value.is_float()) return "float";
  if (value.text() != nullptr) return "str";
  if (value.dict() != nullptr) return "dict";
  if (value.iter() != nullptr) return "generator";
  if (value.space() != nullptr) return "namespace";
  if (value.loop() != nullptr) return "loop";
  if (value.call() != nullptr) return "function";
  switch (value.seq()->kind) {
    case SeqKind::kTuple:
      return "tuple";
    case SeqKind::kRange:
      return "range";
    case SeqKind::kKeys:
    case SeqKind::kValues:
    case SeqKind::kItems:
      return "view of a dict";
    case SeqKind::kList:
      break;
  }
  return "list";
}

Text Str(const Value& value) {
  if (const Text* text = value.text()) return *text;
  if (value.is_undefined()) return Text();
  return Repr(value);
}

Text Repr(const Value& value) {
  Text out;
  AppendRepr(value, &out);
  return out;
}

}  // namespace weir::jinja
