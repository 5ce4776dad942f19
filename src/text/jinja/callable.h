// SPDX-License-Identifier: Apache-2.0
// What a template can call: a macro, a function of the language, or a method together with its object.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace weir::jinja {

class Machine;
struct Node;
struct Scope;

struct Args {
  std::vector<Value> pos;
  std::vector<std::pair<std::string, Value>> named;
  bool given_names = false;  // some name is a key that came with the request: `**message`

  // The argument at `place`, or the one of that name; nullptr when neither was given.
  const Value* Find(size_t place, std::string_view name) const {
    if (place < pos.size()) return &pos[place];
    for (const auto& [key, value] : named) {
      if (key == name) return &value;
    }
    return nullptr;
  }
};

// `self` is the object of a method, the input of a filter or a test, undefined for a function.
using Function = Value (*)(Machine& machine, const Value& self, const Args& args);

// A name of a table of filters, tests, methods or functions.
struct Named {
  std::string_view name;
  Function function;
  int min_args = 0, max_args = 0;  // beside the input
  const char* names[5] = {};       // of the arguments, for keywords
};
struct Callable {
  std::string name;
  Function function = nullptr;
  const Named* named = nullptr;  // of the tables: its arguments are checked
  Value self;
  const Node* macro = nullptr;  // else nullptr; a macro's words and its caller's live in the machine
  Scope* scope = nullptr;       // where the macro was defined
};

// nullptr if the language has none of that name.
const Named* FindFilter(std::string_view name);
const Named* FindTest(std::string_view name);
const Named* FindGlobal(std::string_view name);
const Named* FindTextMethod(std::string_view name);
const Named* FindDictMethod(std::string_view name);
const Named* FindListMethod(std::string_view name);

}  // namespace weir::jinja
