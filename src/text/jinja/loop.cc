// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/loop.h"

#include <algorithm>

namespace weir::jinja {

bool Loop::Take(Value* out) {
  before = current;
  if (after) {
    current = std::move(after);
    after.reset();
  } else {
    Value item;
    if (!rest.empty()) {
      item = std::move(rest.back());
      rest.pop_back();
    } else if (!next || !next(&item)) {
      return false;
    }
    current = std::move(item);
  }
  ++index0;
  *out = *current;
  return true;
}

bool Loop::Peek() {
  if (after) return true;
  Value item;
  if (!rest.empty()) {
    item = std::move(rest.back());
    rest.pop_back();
  } else if (!next || !next(&item)) {
    return false;
  }
  after = std::move(item);
  return true;
}

int64_t Loop::Length() {
  if (!length) {
    Value item;
    std::vector<Value> taken;
    while (next && next(&item)) taken.push_back(std::move(item));
    // What was counted comes after what was already waiting.
    std::reverse(taken.begin(), taken.end());
    taken.insert(taken.end(), rest.begin(), rest.end());
    rest = std::move(taken);
    length = static_cast<int64_t>(rest.size()) + index0 + 1 + (after ? 1 : 0);
  }
  return *length;
}

}  // namespace weir::jinja
