// SPDX-License-Identifier: Apache-2.0
// Calls of macros, functions, methods, filters and tests.
#include <algorithm>

#include "text/jinja/arguments.h"

namespace weir::jinja {

Value Machine::Call(const Value& callee, const Args& args) {
  if (!ok()) return Value();
  const Callable* call = callee.call();
  if (call == nullptr) return Fail(std::string(TypeName(callee)) + " cannot be called");
  Charge(64);
  if (call->macro != nullptr) return CallMacro(*call, args);
  if (call->named != nullptr) return Apply(*call->named, "function", call->self, args);
  return call->function(*this, call->self, args);
}

Value Machine::Apply(const Named& function, const char* kind, const Value& self, const Args& args) {
  if (!ok()) return Value();
  const std::string what = std::string(kind) + " '" + std::string(function.name) + "'";
  const auto n = static_cast<int>(args.pos.size() + args.named.size());
  if (n < function.min_args || n > function.max_args) return Fail(what + " has a wrong number of arguments");
  Charge(64);
  // Those that take any number of arguments check them themselves; the others without names take places only.
  const bool takes_any = function.max_args == kAnyNumber;
  if (!takes_any && !args.named.empty() && function.names[0] == nullptr) return Fail(what + " takes no keywords");
  for (const auto& named : args.named) {
    if (takes_any) continue;
    const std::string& name = named.first;
    const bool known = std::any_of(std::begin(function.names), std::end(function.names),
                                   [&](const char* one) { return one != nullptr && name == one; });
    if (!known) return Fail(what + " has no argument '" + name.substr(0, 40) + "'");
  }
  return function.function(*this, self, args);
}

}  // namespace weir::jinja
