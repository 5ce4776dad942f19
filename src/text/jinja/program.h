// SPDX-License-Identifier: Apache-2.0
// The language that chat templates are written in: Jinja2 as Hugging Face's transformers sets it up (trim_blocks and
// lstrip_blocks, an immutable sandbox, break and continue, `generation` blocks, its own `tojson`, raise_exception and
// strftime_now). Python's jinja2 is the oracle (tools/golden/jinja.py).
//
// A program comes out of a model file and is hostile: it reaches no file, no environment and no clock but the one it is
// given, and its time, memory, output and depth are bounded (jinja/machine.h). Every failure is one line.
//
// What differs from Jinja2: whole numbers have 64 bits; of Python's Markup only `+` is there;
// recursive loops and templates that include others are errors; generators are computed at once.
#pragma once

#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "text/jinja/machine.h"

namespace weir::jinja {

// A name that a template sees, and its value.
using Context = std::vector<std::pair<std::string, Value>>;

// Immutable; Render() may run on several threads at once.
class Program {
 public:
  // kInvalidArgument: "line N of the chat template: ...".
  static Result<Program> Parse(std::string_view source);

  // kInvalidArgument also when the template refuses: raise_exception().
  Result<Text> Render(const Context& context, const std::tm& now, const Limits& limits = {}) const;

 private:
  explicit Program(std::shared_ptr<const Node> root) : root_(std::move(root)) {}
  std::shared_ptr<const Node> root_;
};

}  // namespace weir::jinja
