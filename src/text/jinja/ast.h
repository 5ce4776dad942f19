// SPDX-License-Identifier: Apache-2.0
// The tree of a parsed template. One type of node for expressions and statements: what its fields mean depends on its
// kind, and is said there.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/callable.h"
#include "text/jinja/value.h"

namespace weir::jinja {

// Of the tree, so that walking and freeing it may recurse.
inline constexpr int kMaxTreeDepth = 200;

enum class NodeKind {
  // Expressions.
  kConst,     // value
  kName,      // name
  kList,      // list
  kTuple,     // list; also an assignment's targets
  kDict,      // list: key, value, key, value ...
  kAttr,      // a.name
  kItem,      // a[b]
  kSlice,     // of kItem's b: list has start, stop, step; nullptr where left out
  kCall,      // a(list, named, star, star_star)
  kFilter,    // a|name(list, named): function; a is nullptr in a filter block
  kTest,      // a is name(list, named): function
  kIf,        // a if b else c; c may be nullptr
  kAnd,       // a and b
  kOr,        // a or b
  kNot,       // not a
  kNegative,  // -a
  kPositive,  // +a
  kBinary,    // a name b, an operator of arithmetic
  kConcat,    // list, joined by ~
  kCompare,   // list[0] ops[0] list[1] ops[1] list[2] ...
  // Statements.
  kData,         // value: a text
  kPrint,        // list: expressions
  kBranches,     // if: list has condition, block, condition, block ...; c is the else block or nullptr
  kFor,          // a: target, b: items, c: filter or nullptr; body; orelse
  kSet,          // a: target, b: value
  kSetBlock,     // a: target, b: filters with the body as their input, or nullptr; body
  kWith,         // list: target, value ...; body
  kMacro,        // name, parameters, defaults of the last of them; body
  kCallBlock,    // a: the call; parameters, defaults; body is the caller
  kFilterBlock,  // b: filters; body
  kBreak,
  kContinue,
  kBlock,  // body, in the same scope
};

struct Node;
using NodePtr = std::unique_ptr<Node>;

struct Node {
  NodeKind kind;
  int line = 0;
  int depth = 1;
  std::string name;
  Value value;
  const Named* function = nullptr;  // nullptr: the name is unknown, which is an error where it is reached
  NodePtr a, b, c;
  std::vector<NodePtr> list, defaults, body, orelse;
  std::vector<std::pair<std::string, NodePtr>> named;
  NodePtr star, star_star;
  std::vector<std::string> parameters, ops;
  // Of a macro and a call block's body: the special names that it reads.
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
  bool scoped = false;      // of kBlock: a scope of its own
  bool namespaced = false;  // of an assignment's target: `a.name` of a namespace
};

}  // namespace weir::jinja
