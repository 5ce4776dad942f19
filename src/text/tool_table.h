// SPDX-License-Identifier: Apache-2.0
// The tools that a request offers to the model, as far as reading an answer needs them.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "io/json.h"

namespace weir {

// What a tool's parameter takes, where a format writes values without quotes.
enum class ParameterTakes : int { kUnknown, kText, kTextOrNull, kOther };
// By its schema.
ParameterTakes TakesOf(const Json& schema);

class ToolTable {
 public:
  ToolTable() = default;
  // `tools`: a list in the OpenAI API's form, checked (serve/tool_request.h); what does not have the form is left out.
  explicit ToolTable(const Json& tools);

  bool empty() const { return tools_.empty(); }
  bool Knows(std::string_view tool) const { return tools_.find(tool) != tools_.end(); }
  ParameterTakes Parameter(std::string_view tool, std::string_view parameter) const;

 private:
  std::map<std::string, std::map<std::string, ParameterTakes, std::less<>>, std::less<>> tools_;
};

}  // namespace weir
