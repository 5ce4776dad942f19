// SPDX-License-Identifier: Apache-2.0
// What running a template has in common: its budget, its values, its scopes.
#include "text/jinja/machine.h"

#include <algorithm>

#include "text/jinja/letters.h"

namespace weir::jinja {

const Value* Scope::Find(std::string_view name, int64_t* n_seen) const {
  for (const Scope* at = this; at != nullptr; at = at->parent) {
    ++*n_seen;
    for (const auto& [key, value] : at->vars) {
      ++*n_seen;
      if (key == name) return &value;
    }
  }
  return nullptr;
}

void Scope::Put(std::string_view name, Value value) {
  for (auto& [key, there] : vars) {
    if (key == name) {
      there = std::move(value);
      return;
    }
  }
  vars.emplace_back(name, std::move(value));
}

// Namespaces, loops and scopes refer to each other by plain pointers only, so their order does not matter.
Machine::~Machine() = default;

Result<Text> Machine::Run(const Node& root, std::span<const std::pair<std::string, Value>> context) {
  for (const auto& [name, value] : context) globals_.vars.emplace_back(name, value);
  Text out;
  ExecBody(root.body, NewScope(&globals_), &out);
  if (!status_.ok()) return status_;
  return out;
}

Value Machine::Fail(const std::string& what) {
  if (status_.ok()) {
    status_ = InvalidArgument("line {} of the chat template: {}", line_, OneLine(what));
  }
  return Value();
}

void Machine::Charge(int64_t n) {
  if (!status_.ok()) return;  // and the sum cannot overflow
  work_ += n;
  if (work_ > limits_.work) {
    status_ = InvalidArgument("line {} of the chat template: it works longer than a template may", line_);
  }
}

void Machine::ChargeSearch(std::string_view text, std::string_view what) {
  const size_t places = text.size() < what.size() ? 0 : text.size() - what.size();
  Charge(static_cast<int64_t>(text.size() + what.size() + places * (what.size() / 32)));
}

void Machine::ChargeLook(const Dict& dict, const Value& key) {
  const auto n = static_cast<int64_t>(dict.items.size());
  const int64_t weight = WeightOf(key);
  // No key is compared for longer than it, or the sought one, is.
  Charge(n * 2 + weight / 8 + (n == 0 || weight >= dict.weight / n ? dict.weight : n * weight) / 8);
}

const Value* Machine::Find(const Scope& scope, std::string_view name) {
  int64_t n_seen = 0;
  const Value* out = scope.Find(name, &n_seen);
  Charge(n_seen * 2);
  return out;
}

const Value* Machine::Look(const Dict& dict, const Value& key) {
  ChargeLook(dict, key);
  return ok() ? dict.Find(key) : nullptr;
}

Value Machine::Checked(Value value) {
  if (DepthOf(value) > kMaxValueDepth) return Fail("a value is nested too deeply");
  return value;
}

Value Machine::NewText(Text text) {
  Charge(text.cost());
  if (!ok()) return Value();
  return text;
}

Value Machine::NewSeq(std::vector<Value> items, SeqKind kind) {
  Charge(static_cast<int64_t>(items.size() * sizeof(Value)));
  return Checked(MakeSeq(std::move(items), kind));
}

Value Machine::NewIter(std::vector<Value> items) {
  Charge(static_cast<int64_t>(items.size() * sizeof(Value)));
  return Checked(MakeIter(std::move(items)));
}

Value Machine::NewDict(std::vector<std::pair<Value, Value>> items) {
  Charge(static_cast<int64_t>(items.size() * 2 * sizeof(Value)));
  return Checked(MakeDict(std::move(items)));
}

Value Machine::NewNamespace(Namespace space) {
  Charge(static_cast<int64_t>((space.vars.size() + 1) * 4 * sizeof(Value)));
  for (const auto& [name, value] : space.vars) Charge(static_cast<int64_t>(name.size()));
  spaces_.push_back(std::move(space));
  return &spaces_.back();
}

Value Machine::NewFunction(std::string name, Function function, Value self, const Named* named) {
  Charge(64);
  auto out = std::make_shared<Callable>();
  out->name = std::move(name);
  out->function = function;
  out->named = named;
  out->self = std::move(self);
  return Checked(std::shared_ptr<const Callable>(std::move(out)));
}

Scope* Machine::NewScope(Scope* parent) {
  Charge(128);
  scopes_.push_back({parent, {}});
  return &scopes_.back();
}

Loop* Machine::NewLoop() {
  Charge(sizeof(Loop));
  return &loops_.emplace_back();
}

Text Machine::StrOf(const Value& value) {
  if (const Text* text = value.text()) {
    Charge(text->cost());
    return ok() ? *text : Text();
  }
  Charge(WeightOf(value) * 4);
  return ok() ? Str(value) : Text();
}

bool Machine::Same(const Value& a, const Value& b) {
  Charge(std::min(WeightOf(a), WeightOf(b)));
  return ok() && Equal(a, b);
}

bool Machine::Items(const Value& value, std::vector<Value>* out) {
  if (value.is_undefined()) return true;
  if (const Seq* seq = value.seq()) {
    *out = seq->items;
  } else if (const Dict* dict = value.dict()) {
    for (const auto& [key, item] : dict->items) out->push_back(key);
  } else if (Iter* iter = value.iter()) {
    out->assign(iter->items.begin() + static_cast<ptrdiff_t>(iter->at), iter->items.end());
    iter->at = iter->items.size();
  } else if (Loop* loop = value.loop()) {
    Value item;
    while (ok() && loop->Take(&item)) out->push_back(item);
  } else if (const Text* text = value.text()) {
    Charge(static_cast<int64_t>(text->size() * 64));
    for (size_t pos = 0; ok() && pos < text->size();) {
      const size_t n = CharBytes(text->view(), pos);
      out->emplace_back(text->Part(pos, pos + n));
      pos += n;
    }
  } else {
    Fail(std::string(TypeName(value)) + " cannot be iterated");
  }
  Charge(static_cast<int64_t>(out->size() * sizeof(Value)));
  return ok();
}

}  // namespace weir::jinja
