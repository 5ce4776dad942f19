// SPDX-License-Identifier: Apache-2.0
// Statements. Scopes are Jinja2's: a loop's body, a block that is captured and a macro have their own, a branch has
// not.
#include <utility>

#include "text/jinja/machine.h"
#include "text/jinja/machine_level.h"

namespace weir::jinja {

void Machine::Print(const Value& value, Text* out) {
  if (!ok()) return;
  Text made;
  const Text* text = value.text();
  if (text == nullptr) {
    made = StrOf(value);
    text = &made;
  }
  // What is printed becomes a piece for every run of one origin, which takes more than its mark.
  Charge(static_cast<int64_t>(text->size()) + (text->cost() - static_cast<int64_t>(text->size())) * 4 + 64);
  if (static_cast<int64_t>(out->size() + text->size()) > limits_.output_bytes) {
    Fail("it prints more than a template may");
  }
  if (ok()) out->Append(*text);
}

Machine::Flow Machine::ExecBody(const std::vector<NodePtr>& body, Scope* scope, Text* out) {
  for (const NodePtr& node : body) {
    const Flow flow = Exec(*node, scope, out);
    if (!ok() || flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Machine::Flow Machine::Exec(const Node& node, Scope* scope, Text* out) {
  const Level level(this);
  Charge(64);
  if (!ok()) return Flow::kNext;
  line_ = node.line;
  switch (node.kind) {
    case NodeKind::kData:
      Print(node.value, out);
      break;
    case NodeKind::kPrint:
      for (const NodePtr& part : node.list) Print(Eval(*part, scope), out);
      break;
    case NodeKind::kBranches:
      return ExecBranches(node, scope, out);
    case NodeKind::kFor:
      return ExecFor(node, scope, out);
    case NodeKind::kSet:
      Assign(*node.a, Eval(*node.b, scope), scope);
      break;
    case NodeKind::kSetBlock:
      ExecSetBlock(node, scope);
      break;
    case NodeKind::kWith:
      return ExecWith(node, scope, out);
    case NodeKind::kMacro:
      scope->Put(node.name, NewMacro(node, node.name, scope));
      break;
    case NodeKind::kCallBlock:
      ExecCallBlock(node, scope, out);
      break;
    case NodeKind::kFilterBlock:
      ExecFilterBlock(node, scope, out);
      break;
    case NodeKind::kBreak:
      return Flow::kBreak;
    case NodeKind::kContinue:
      return Flow::kContinue;
    case NodeKind::kBlock:
      return ExecBody(node.body, node.scoped ? NewScope(scope) : scope, out);
    default:
      break;
  }
  return Flow::kNext;
}

Machine::Flow Machine::ExecBranches(const Node& node, Scope* scope, Text* out) {
  for (size_t i = 0; i + 1 < node.list.size(); i += 2) {
    const bool holds = Truth(Eval(*node.list[i], scope));
    if (!ok()) return Flow::kNext;
    if (holds) return Exec(*node.list[i + 1], scope, out);
  }
  return node.c != nullptr ? Exec(*node.c, scope, out) : Flow::kNext;
}

Machine::Flow Machine::ExecFor(const Node& node, Scope* scope, Text* out) {
  const Value source = Eval(*node.b, scope);
  Loop* const loop = NewLoop();
  loop->depth_of_items = DepthOf(source);
  if (loop->depth_of_items >= kMaxValueDepth) Fail("a value is nested too deeply");
  // A generator is read as the loop goes on; everything else is there.
  std::vector<Value> items;
  Iter* const iter = source.iter();
  if (!ok() || (iter == nullptr && !Items(source, &items))) return Flow::kNext;
  size_t at = 0;
  loop->next = [&](Value* item) {
    while (ok()) {
      if (iter != nullptr ? iter->at >= iter->items.size() : at >= items.size()) return false;
      *item = iter != nullptr ? iter->items[iter->at++] : items[at++];
      if (node.c == nullptr) return true;
      Scope* const test = NewScope(scope);
      Assign(*node.a, *item, test);
      if (Truth(Eval(*node.c, test))) return ok();
    }
    return false;
  };
  bool any = false;
  Value item;
  while (ok() && loop->Take(&item)) {
    any = true;
    Scope* const inner = NewScope(scope);
    inner->Put("loop", loop);
    Assign(*node.a, item, inner);
    if (ExecBody(node.body, inner, out) == Flow::kBreak) break;
  }
  loop->next = nullptr;
  if (any || node.orelse.empty() || !ok()) return Flow::kNext;
  return ExecBody(node.orelse, NewScope(scope), out);
}

Machine::Flow Machine::ExecWith(const Node& node, Scope* scope, Text* out) {
  Scope* const inner = NewScope(scope);
  std::vector<Value> values;
  for (size_t i = 1; i < node.list.size(); i += 2) values.push_back(Eval(*node.list[i], scope));
  for (size_t i = 0; i < values.size(); ++i) Assign(*node.list[2 * i], values[i], inner);
  return ok() ? ExecBody(node.body, inner, out) : Flow::kNext;
}

void Machine::ExecSetBlock(const Node& node, Scope* scope) {
  Text body;
  ExecBody(node.body, NewScope(scope), &body);
  Value value = NewText(std::move(body));
  if (ok() && node.b != nullptr) value = EvalFilter(*node.b, scope, &value);
  Assign(*node.a, std::move(value), scope);
}

void Machine::ExecFilterBlock(const Node& node, Scope* scope, Text* out) {
  Text body;
  Scope* const inner = NewScope(scope);
  ExecBody(node.body, inner, &body);
  const Value value = NewText(std::move(body));
  if (ok()) Print(EvalFilter(*node.b, inner, &value), out);
}

void Machine::ExecCallBlock(const Node& node, Scope* scope, Text* out) {
  const Value caller = NewMacro(node, "caller", NewScope(scope));
  Print(EvalCall(*node.a, scope, &caller), out);
}

void Machine::Assign(const Node& target, Value value, Scope* scope) {
  if (!ok()) return;
  if (target.namespaced) {
    const Value* space = Find(*scope, target.name);
    if (space == nullptr || space->space() == nullptr) {
      Fail("'" + target.name + "' is not a namespace, so its '" + target.ops[0] + "' cannot be set");
      return;
    }
    if (target.ops[0].starts_with("_")) {
      Fail("a namespace has no names that begin with an underscore");
      return;
    }
    Charge(static_cast<int64_t>(space->space()->vars.size()));
    space->space()->Put(target.ops[0], std::move(value));
    return;
  }
  if (target.kind == NodeKind::kName) {
    Charge(static_cast<int64_t>(scope->vars.size()));
    scope->Put(target.name, std::move(value));
    return;
  }
  std::vector<Value> items;
  if (value.is_undefined() || !Items(value, &items)) {
    Fail(std::string(TypeName(value)) + " cannot be taken apart into several names");
    return;
  }
  if (items.size() != target.list.size()) {
    Fail(std::to_string(items.size()) + " values for " + std::to_string(target.list.size()) + " names");
    return;
  }
  for (size_t i = 0; i < items.size(); ++i) Assign(*target.list[i], std::move(items[i]), scope);
}

Value Machine::NewMacro(const Node& node, std::string name, Scope* scope) {
  Charge(64);
  auto out = std::make_shared<Callable>();
  out->name = std::move(name);
  out->macro = &node;
  out->scope = scope;
  return std::shared_ptr<const Callable>(std::move(out));
}

Value Machine::CallMacro(const Callable& macro, const Args& args) {
  const Node& node = *macro.macro;
  const std::vector<std::string>& parameters = node.parameters;
  Scope* const scope = NewScope(macro.scope);
  // Each parameter is put where no other has its name, and each keyword is looked for.
  Charge(static_cast<int64_t>(parameters.size() * (parameters.size() + args.named.size() + 8)));
  if (!ok()) return Value();
  const std::string what = "macro '" + macro.name + "'";
  const size_t n_pos = std::min(args.pos.size(), parameters.size());
  std::vector<bool> given(parameters.size(), false);
  for (size_t i = 0; i < n_pos; ++i) {
    scope->Put(parameters[i], args.pos[i]);
    given[i] = true;
  }
  std::vector<std::pair<Value, Value>> kwargs;
  const Value* caller = nullptr;
  for (const auto& [name, value] : args.named) {
    size_t i = 0;
    while (i < parameters.size() && parameters[i] != name) ++i;
    if (i < parameters.size()) {
      if (given[i]) return Fail(what + " gets its argument '" + name + "' twice");
      scope->Put(parameters[i], value);
      given[i] = true;
    } else if (name == "caller" && node.uses_caller) {
      caller = &value;
    } else if (node.uses_kwargs) {
      kwargs.emplace_back(Text(name, args.given_names), value);
    } else {
      return Fail(what + " has no argument '" + name.substr(0, 40) + "'");
    }
  }
  if (args.pos.size() > parameters.size() && !node.uses_varargs) {
    return Fail(what + " takes " + std::to_string(parameters.size()) + " arguments");
  }
  const size_t n_required = parameters.size() - node.defaults.size();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (given[i]) continue;
    // A default may use the parameters before it.
    scope->Put(parameters[i], i < n_required ? Value() : Eval(*node.defaults[i - n_required], scope));
  }
  if (node.uses_caller) scope->Put("caller", caller != nullptr ? *caller : Value());
  if (node.uses_kwargs) scope->Put("kwargs", NewDict(std::move(kwargs)));
  if (node.uses_varargs) {
    scope->Put("varargs", NewSeq({args.pos.begin() + static_cast<ptrdiff_t>(n_pos), args.pos.end()}, SeqKind::kTuple));
  }
  Text out;
  if (ok()) ExecBody(node.body, scope, &out);
  return NewText(std::move(out));
}

}  // namespace weir::jinja
