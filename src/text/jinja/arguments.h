// SPDX-License-Identifier: Apache-2.0
// Arguments of the language's functions, read with their defaults. A wrong type ends the template.
#pragma once

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "text/jinja/machine.h"

namespace weir::jinja {

inline bool Has(const Args& args, size_t place, std::string_view name) {
  const Value* value = args.Find(place, name);
  return value != nullptr && !value->is_none();
}

inline int64_t WholeArg(Machine& machine, const Args& args, size_t place, std::string_view name, int64_t otherwise) {
  const Value* value = args.Find(place, name);
  if (value == nullptr || value->is_none()) return otherwise;
  if (value->is_int() || value->is_bool()) return value->integer();
  machine.Fail("'" + std::string(name) + "' must be a whole number, not " + TypeName(*value));
  return otherwise;
}

inline bool FlagArg(const Args& args, size_t place, std::string_view name, bool otherwise) {
  const Value* value = args.Find(place, name);
  return value == nullptr ? otherwise : Truth(*value);
}

// A str; empty for one that is missing, an error for another type.
inline Text TextArg(Machine& machine, const Args& args, size_t place, std::string_view name) {
  const Value* value = args.Find(place, name);
  if (value == nullptr) return Text();
  if (const Text* text = value->text()) {
    machine.Charge(text->cost());
    return machine.ok() ? *text : Text();
  }
  machine.Fail("'" + std::string(name) + "' must be a str, not " + TypeName(*value));
  return Text();
}

template <size_t kN>
const Named* FindIn(const Named (&table)[kN], std::string_view name) {
  const Named* it = std::find_if(std::begin(table), std::end(table), [&](const Named& n) { return n.name == name; });
  return it == std::end(table) ? nullptr : it;
}

inline constexpr int kAnyNumber = 1 << 20;

}  // namespace weir::jinja
