// SPDX-License-Identifier: Apache-2.0
// The state behind the name `loop` in a for-loop. Items are taken one at a time, so that a loop's filter sees what the
// body has set so far, as with Jinja2; `last`, `nextitem` and `length` look ahead.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "text/jinja/value.h"

namespace weir::jinja {

struct Loop {
  std::function<bool(Value*)> next;  // false at the end; empty once the loop is over
  int64_t index0 = -1;
  int64_t level = 0;  // of nested recursive calls; loops nested in the text do not count
  std::optional<Value> before, current, after;
  std::vector<Value> rest;  // taken to count them; reversed
  std::optional<int64_t> length;
  std::optional<std::vector<Value>> changed;
  int depth_of_items = 1;

  bool Take(Value* out);
  // Makes `after` the next item, if there is one.
  bool Peek();
  int64_t Length();
};

}  // namespace weir::jinja
