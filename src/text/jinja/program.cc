// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/program.h"

#include "text/jinja/parser.h"

namespace weir::jinja {

Result<Program> Program::Parse(std::string_view source) {
  WEIR_ASSIGN_OR_RETURN(NodePtr root, ParseTemplate(source));
  return Program(std::move(root));
}

Result<Text> Program::Render(const Context& context, const std::tm& now, const Limits& limits) const {
  Machine machine(limits, now);
  return machine.Run(*root_, context);
}

}  // namespace weir::jinja
