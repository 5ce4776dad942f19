// SPDX-License-Identifier: Apache-2.0
// Expressions.
#include <utility>

#include "text/jinja/machine.h"
#include "text/jinja/machine_level.h"

namespace weir::jinja {
namespace {

// How an error names an expression that has no value.
std::string SpelledOut(const Node& node) {
  if (node.kind == NodeKind::kName) return "'" + node.name + "'";
  if (node.kind == NodeKind::kAttr) {
    std::string of = SpelledOut(*node.a);
    if (of.size() > 2 && of[0] == '\'') return of.substr(0, of.size() - 1) + "." + node.name + "'";
    return "'" + node.name + "'";
  }
  return "a value";
}

}  // namespace

// Small: it is on the stack once for every level of the tree.
Value Machine::Eval(const Node& node, Scope* scope) {
  const Level level(this);
  if (!ok()) return Value();
  Charge(64);
  switch (node.kind) {
    case NodeKind::kConst:
      return node.value;
    case NodeKind::kName:
      return EvalName(node, scope);
    case NodeKind::kAttr:
      return EvalAttr(node, scope);
    case NodeKind::kItem:
      return EvalItem(node, scope);
    case NodeKind::kCall:
      return EvalCall(node, scope, nullptr);
    case NodeKind::kFilter:
    case NodeKind::kTest:
      return EvalFilter(node, scope, nullptr);
    case NodeKind::kDict:
      return EvalDict(node, scope);
    case NodeKind::kConcat:
      return EvalConcat(node, scope);
    case NodeKind::kCompare:
      return EvalCompare(node, scope);
    case NodeKind::kNegative:
    case NodeKind::kPositive:
      return EvalSign(node, scope);
    default:
      return EvalOther(node, scope);
  }
}

Value Machine::EvalName(const Node& node, Scope* scope) {
  if (const Value* value = Find(*scope, node.name)) return *value;
  if (const Named* global = FindGlobal(node.name)) return NewFunction(*global, Value());
  return Value();
}

Value Machine::EvalAttr(const Node& node, Scope* scope) {
  const Value of = Eval(*node.a, scope);
  if (!ok()) return Value();
  if (of.is_undefined()) {
    line_ = node.line;
    return Fail(SpelledOut(*node.a) + " is undefined, so it has no '" + node.name + "'");
  }
  return Attribute(of, node.name);
}

Value Machine::EvalItem(const Node& node, Scope* scope) {
  const Value of = Eval(*node.a, scope);
  const Node& key = *node.b;
  if (ok() && of.is_undefined()) {
    line_ = node.line;
    return Fail(SpelledOut(*node.a) + " is undefined, so it has no items");
  }
  if (key.kind != NodeKind::kSlice) {
    const Value at = Eval(key, scope);
    return ok() ? Item(of, at) : Value();
  }
  Value bounds[3] = {None{}, None{}, None{}};
  for (size_t i = 0; i < 3; ++i) {
    if (key.list[i] != nullptr) bounds[i] = Eval(*key.list[i], scope);
  }
  return ok() ? Slice(of, bounds[0], bounds[1], bounds[2]) : Value();
}

bool Machine::Arguments(const Node& node, Scope* scope, Args* out) {
  for (const NodePtr& arg : node.list) out->pos.push_back(Eval(*arg, scope));
  for (const auto& [name, arg] : node.named) out->named.emplace_back(name, Eval(*arg, scope));
  if (node.star != nullptr) {
    std::vector<Value> more;
    if (Items(Eval(*node.star, scope), &more)) out->pos.insert(out->pos.end(), more.begin(), more.end());
  }
  if (node.star_star != nullptr) {
    const Value more = Eval(*node.star_star, scope);
    if (!ok()) return false;
    if (more.dict() == nullptr) Fail("the argument after ** must be a dict");
    if (const Dict* dict = more.dict()) {
      Charge(static_cast<int64_t>(dict->items.size() * 64));
      for (const auto& [key, value] : dict->items) {
        if (key.text() == nullptr) {
          Fail("keywords must be strings");
        } else {
          Charge(key.text()->cost() * 2);
          if (!ok()) return false;
          out->given_names |= key.text()->AnyGiven();
          out->named.emplace_back(key.text()->bytes(), value);
        }
      }
    }
  }
  return ok();
}

Value Machine::EvalCall(const Node& node, Scope* scope, const Value* caller) {
  const Value callee = Eval(*node.a, scope);
  if (ok() && callee.is_undefined()) {
    line_ = node.line;
    return Fail(SpelledOut(*node.a) + " is undefined, so it cannot be called");
  }
  Args args;
  if (!Arguments(node, scope, &args)) return Value();
  if (caller != nullptr) args.named.emplace_back("caller", *caller);
  line_ = node.line;
  return Call(callee, args);
}

Value Machine::EvalFilter(const Node& node, Scope* scope, const Value* input) {
  const Level level(this);  // of its own: filters in a row come here without Eval()
  if (!ok()) return Value();
  const Value self =
      node.a != nullptr ? (node.a->kind == NodeKind::kFilter ? EvalFilter(*node.a, scope, input) : Eval(*node.a, scope))
                        : (input != nullptr ? *input : Value());
  const char* kind = node.kind == NodeKind::kFilter ? "filter" : "test";
  if (node.function == nullptr) return Fail("there is no " + std::string(kind) + " '" + node.name.substr(0, 40) + "'");
  Args args;
  if (!Arguments(node, scope, &args)) return Value();
  line_ = node.line;
  return Apply(*node.function, kind, self, args);
}

Value Machine::EvalDict(const Node& node, Scope* scope) {
  Dict out;
  for (size_t i = 0; i + 1 < node.list.size(); i += 2) {
    Value key = Eval(*node.list[i], scope);
    Value value = Eval(*node.list[i + 1], scope);
    if (!ok()) return Value();
    if (key.dict() != nullptr || (key.seq() != nullptr && key.seq()->kind == SeqKind::kList)) {
      return Fail(std::string(TypeName(key)) + " cannot be the key of a dict");
    }
    ChargeLook(out, key);
    if (!ok()) return Value();
    out.Put(std::move(key), std::move(value));
  }
  return NewDict(std::move(out.items));
}

Value Machine::EvalConcat(const Node& node, Scope* scope) {
  Text out;
  for (const NodePtr& part : node.list) {
    const Value value = Eval(*part, scope);
    if (!ok()) return Value();
    out.Append(StrOf(value));
    Charge(WeightOf(value));
  }
  return NewText(std::move(out));
}

Value Machine::EvalCompare(const Node& node, Scope* scope) {
  Value left = Eval(*node.list[0], scope);
  for (size_t i = 0; i < node.ops.size(); ++i) {
    Value right = Eval(*node.list[i + 1], scope);
    if (!ok()) return Value();
    line_ = node.line;
    if (!Compare(node.ops[i], left, right)) return false;
    left = std::move(right);
  }
  return ok();
}

Value Machine::EvalSign(const Node& node, Scope* scope) {
  const Value a = Eval(*node.a, scope);
  if (!ok()) return Value();
  if (!a.is_number()) return Fail(std::string("no sign can be put before ") + TypeName(a));
  const bool negative = node.kind == NodeKind::kNegative;
  if (a.is_float()) return negative ? -a.number() : a.number();
  if (negative && a.integer() == INT64_MIN) return Fail("a number is too large");
  return negative ? -a.integer() : a.integer();
}

Value Machine::EvalOther(const Node& node, Scope* scope) {
  switch (node.kind) {
    case NodeKind::kList:
    case NodeKind::kTuple: {
      std::vector<Value> items;
      for (const NodePtr& item : node.list) items.push_back(Eval(*item, scope));
      return NewSeq(std::move(items), node.kind == NodeKind::kTuple ? SeqKind::kTuple : SeqKind::kList);
    }
    case NodeKind::kIf:
      if (Truth(Eval(*node.b, scope))) return Eval(*node.a, scope);
      return node.c != nullptr ? Eval(*node.c, scope) : Value();
    case NodeKind::kAnd: {
      Value a = Eval(*node.a, scope);
      return Truth(a) ? Eval(*node.b, scope) : a;
    }
    case NodeKind::kOr: {
      Value a = Eval(*node.a, scope);
      return Truth(a) ? a : Eval(*node.b, scope);
    }
    case NodeKind::kNot:
      return !Truth(Eval(*node.a, scope));
    case NodeKind::kBinary: {
      const Value a = Eval(*node.a, scope);
      const Value b = Eval(*node.b, scope);
      line_ = node.line;
      return ok() ? Arithmetic(node.name, a, b) : Value();
    }
    case NodeKind::kSlice:
      return Fail("a slice outside of brackets");
    default:
      return Value();
  }
}

}  // namespace weir::jinja
