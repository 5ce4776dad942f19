// SPDX-License-Identifier: Apache-2.0
#include "text/tool_table.h"

namespace weir {
namespace {

ParameterTakes TakesOf(const Json& schema) {
  if (!schema.is_object() || !schema.contains("type")) return ParameterTakes::kUnknown;
  const Json& type = schema["type"];
  if (type == "string") return ParameterTakes::kText;
  return type.is_string() ? ParameterTakes::kOther : ParameterTakes::kUnknown;
}

}  // namespace

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
