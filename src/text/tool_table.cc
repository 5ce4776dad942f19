// SPDX-License-Identifier: Apache-2.0
#include "text/tool_table.h"

#include <algorithm>

namespace weir {
namespace {

// A list of types, or of choices: one is a text, and the other is null.
bool IsTextOrNull(const Json& list, const auto& is) {
  return list.is_array() && list.size() == 2 &&
         ((is(list[0], "string") && is(list[1], "null")) || (is(list[1], "string") && is(list[0], "null")));
}

}  // namespace

ParameterTakes TakesOf(const Json& schema) {
  if (!schema.is_object()) return ParameterTakes::kUnknown;
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (*type == "string") return ParameterTakes::kText;
    if (IsTextOrNull(*type, [](const Json& one, const char* name) { return one == name; })) {
      return ParameterTakes::kTextOrNull;
    }
    return type->is_string() ? ParameterTakes::kOther : ParameterTakes::kUnknown;
  }
  if (const auto choices = schema.find("anyOf"); choices != schema.end()) {
    const auto is = [](const Json& one, const char* name) {
      return one.is_object() && one.value("type", Json()) == name;
    };
    if (IsTextOrNull(*choices, is)) return ParameterTakes::kTextOrNull;
  }
  if (const auto values = schema.find("enum"); values != schema.end() && values->is_array() && !values->empty()) {
    const auto is_text = [](const Json& value) { return value.is_string(); };
    if (std::all_of(values->begin(), values->end(), is_text)) return ParameterTakes::kText;
  }
  return ParameterTakes::kUnknown;
}

ToolTable::ToolTable(const Json& tools) {
  if (!tools.is_array()) return;
  for (const Json& tool : tools) {
    if (!tool.is_object() || !tool.contains("function") || !tool["function"].is_object()) continue;
    const Json& function = tool["function"];
    if (!function.contains("name") || !function["name"].is_string()) continue;
    auto& parameters = tools_[function["name"].get<std::string>()];
    if (!function.contains("parameters") || !function["parameters"].is_object()) continue;
    const auto properties = function["parameters"].find("properties");
    if (properties == function["parameters"].end() || !properties->is_object()) continue;
    for (const auto& [key, schema] : properties->items()) parameters[key] = TakesOf(schema);
  }
}

ParameterTakes ToolTable::Parameter(std::string_view tool, std::string_view parameter) const {
  const auto of_tool = tools_.find(tool);
  if (of_tool == tools_.end()) return ParameterTakes::kUnknown;
  const auto it = of_tool->second.find(parameter);
  return it == of_tool->second.end() ? ParameterTakes::kUnknown : it->second;
}

}  // namespace weir
