// SPDX-License-Identifier: Apache-2.0
// A value as JSON, byte for byte as Python's json.dumps() writes it: the filter `tojson` of chat templates.
#pragma once

#include <optional>

#include "text/jinja/machine.h"

namespace weir::jinja {

struct JsonForm {
  bool ascii = false;          // other characters are escaped
  std::optional<Text> indent;  // of each level; none: one line
  Text item_separator = Text(", "), key_separator = Text(": ");
  bool sort_keys = false;
};

// An error for what JSON has no form for.
Value JsonOf(Machine& machine, const Value& value, const JsonForm& form);

}  // namespace weir::jinja
