// SPDX-License-Identifier: Apache-2.0
// Counts how deep the machine is on the stack: the tree is bounded, but macros may call themselves.
#pragma once

#include "text/jinja/machine.h"

namespace weir::jinja {

inline constexpr int kMaxLevels = 900;

class Machine::Level {
 public:
  explicit Level(Machine* machine) : machine_(machine) {
    if (++machine_->level_ > kMaxLevels) machine_->Fail("it calls itself too deeply");
  }
  ~Level() { --machine_->level_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Machine* machine_;
};

}  // namespace weir::jinja
