// SPDX-License-Identifier: Apache-2.0
// Runs a tree. A template is hostile: it has no files, no environment and no clock but the one it is given, and all it
// does is charged. The first error ends it; after that every value is undefined and nothing is printed.
//
// The work budget bounds time and memory in one: a node costs 64, and what is made costs its bytes. What a template has
// made can at most be of the size that it has paid for.
#pragma once

#include <ctime>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/ast.h"
#include "text/jinja/callable.h"
#include "text/jinja/loop.h"
#include "text/jinja/value.h"

namespace weir::jinja {

struct Limits {
  int64_t work = int64_t{64} << 20;
  int64_t output_bytes = int64_t{16} << 20;
};

// Names and their values, and the scope around them.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> vars;             // names live in the tree or in the caller's context
  const Value* Find(std::string_view name, int64_t* n_seen) const;  // here and outwards; adds what it looked at
  void Put(std::string_view name, Value value);
};

class Machine {
 public:
  // `now`: what strftime_now() tells. Both must outlive the machine.
  Machine(const Limits& limits, const std::tm& now) : limits_(limits), now_(now) {}
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine();

  // Runs a whole template with these names known to it; they and the tree must outlive the machine.
  Result<Text> Run(const Node& root, std::span<const std::pair<std::string, Value>> context);

  bool ok() const { return status_.ok(); }
  // Ends the template with "line N of the chat template: WHAT".
  Value Fail(const std::string& what);
  // Pays for work; ends the template when the budget is spent. REQUIRES: n >= 0.
  void Charge(int64_t n);
  // What is left of the budget.
  int64_t left() const { return limits_.work - work_; }
  // Pays for looking for `what` in `text`, which compares it at every place at worst.
  void ChargeSearch(std::string_view text, std::string_view what);
  // Pays for looking at every key of a dict.
  void ChargeLook(const Dict& dict, const Value& key);
  const std::tm& now() const { return now_; }

  // A key of a dict, paid for; nullptr if there is none.
  const Value* Look(const Dict& dict, const Value& key);

  // Values that are paid for, and not nested too deeply.
  Value NewText(Text text);
  Value NewWords(std::string words) { return NewText(Text(std::move(words))); }
  Value NewSeq(std::vector<Value> items, SeqKind kind = SeqKind::kList);
  Value NewIter(std::vector<Value> items);
  Value NewDict(std::vector<std::pair<Value, Value>> items);
  Value NewNamespace(Namespace space);
  Value NewFunction(std::string name, Function function, Value self, const Named* named = nullptr);
  Value NewFunction(const Named& named, Value self) {
    return NewFunction(std::string(named.name), named.function, std::move(self), &named);
  }

  // Python's str() and ==, paid for.
  Text StrOf(const Value& value);
  bool Same(const Value& a, const Value& b);

  // What a for-loop would see, all at once. An error for what cannot be iterated.
  bool Items(const Value& value, std::vector<Value>* out);

  // a.name and a[key]; undefined where there is neither. An error if `of` is undefined.
  Value Attribute(const Value& of, std::string_view name);
  Value Item(const Value& of, const Value& key);
  Value Slice(const Value& of, const Value& start, const Value& stop, const Value& step);
  // "a.b.0", as the filters `map` and `sort` take it.
  Value Path(const Value& of, const Value& path, const Value* otherwise);

  Value Call(const Value& callee, const Args& args);
  // A filter or a test with its input; checks the number and the names of arguments.
  Value Apply(const Named& function, const char* kind, const Value& self, const Args& args);

  // Operators: "+", "<", "in" ...
  Value Arithmetic(std::string_view op, const Value& a, const Value& b);
  bool Compare(std::string_view op, const Value& a, const Value& b);
  // Python's a < b; an error for what has no order.
  bool Less(const Value& a, const Value& b);
  bool In(const Value& item, const Value& container);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class Level;

  Value Eval(const Node& node, Scope* scope);
  Value EvalName(const Node& node, Scope* scope);
  Value EvalAttr(const Node& node, Scope* scope);
  Value EvalItem(const Node& node, Scope* scope);
  Value EvalCall(const Node& node, Scope* scope, const Value* caller);
  Value EvalFilter(const Node& node, Scope* scope, const Value* input);
  Value EvalDict(const Node& node, Scope* scope);
  Value EvalConcat(const Node& node, Scope* scope);
  Value EvalCompare(const Node& node, Scope* scope);
  Value EvalOther(const Node& node, Scope* scope);
  Value EvalSign(const Node& node, Scope* scope);
  bool Arguments(const Node& node, Scope* scope, Args* out);

  Flow Exec(const Node& node, Scope* scope, Text* out);
  Flow ExecBody(const std::vector<NodePtr>& body, Scope* scope, Text* out);
  Flow ExecFor(const Node& node, Scope* scope, Text* out);
  Flow ExecBranches(const Node& node, Scope* scope, Text* out);
  void ExecSetBlock(const Node& node, Scope* scope);
  void ExecCallBlock(const Node& node, Scope* scope, Text* out);
  void ExecFilterBlock(const Node& node, Scope* scope, Text* out);
  Flow ExecWith(const Node& node, Scope* scope, Text* out);
  void Print(const Value& value, Text* out);
  void Assign(const Node& target, Value value, Scope* scope);
  Value NewMacro(const Node& node, std::string name, Scope* scope);
  Value CallMacro(const Callable& macro, const Args& args);
  // A new scope inside `parent`; it lives as long as the machine, because macros may keep it.
  Scope* NewScope(Scope* parent);
  Loop* NewLoop();
  Value Checked(Value value);
  const Value* Find(const Scope& scope, std::string_view name);

  const Limits& limits_;
  const std::tm& now_;
  Status status_;
  int64_t work_ = 0;
  int level_ = 0;
  int line_ = 0;
  Scope globals_;
  std::deque<Scope> scopes_;
  std::deque<Namespace> spaces_;
  std::deque<Loop> loops_;
};

}  // namespace weir::jinja
