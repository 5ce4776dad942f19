// SPDX-License-Identifier: Apache-2.0
// Writes the calls that block_reader.h understands.
#include "text/dialects/block_reader.h"

namespace weir {

Result<FormBuilder::Part> WritePythonCall(CallWriter& writer, const CallWriter::Tool& tool) {
  WEIR_ASSIGN_OR_RETURN(const auto arguments,
                        writer.NotedArguments(tool, {.yes = "True", .no = "False", .none = "None", .key_end = "="}));
  return writer.Sequence({writer.Text(tool.name + "("), arguments, writer.Text(")")});
}

Result<CallParts> WriteBraces(CallWriter& writer, std::span<const std::string_view> opens, std::string_view close,
                              std::string_view quote) {
  const CallWriter::Notation notation = {.quote = quote, .bare_keys = true, .key_end = ":"};
  const auto call = writer.EachTool([&](const CallWriter::Tool& tool) -> Result<FormBuilder::Part> {
    WEIR_ASSIGN_OR_RETURN(const auto arguments, writer.NotedArguments(tool, notation));
    return writer.Sequence({writer.Text("call:" + tool.name + "{"), arguments, writer.Text("}")});
  });
  WEIR_RETURN_IF_ERROR(call.status());
  return writer.Between(opens, writer.Sequence({*call, writer.Marker(close)}), {});
}

}  // namespace weir
