// SPDX-License-Identifier: Apache-2.0
// The formats of strings in JSON schemas, as regular expressions.
#pragma once

#include <string_view>

namespace weir::forms {

enum class FormatKind {
  kHeld,     // by an expression
  kNotHeld,  // a format of JSON schemas that no expression holds
  kUnknown,  // an annotation, by the specification
};
struct Format {
  FormatKind kind;
  std::string_view expression;  // of the whole string
};
Format FindFormat(std::string_view name);

}  // namespace weir::forms
