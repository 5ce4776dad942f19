// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// Apertus: a list of objects, each with the tool's name as its only key.
//
//     <|tools_prefix|>[{"f": {"a": 1}}, {"g": {}}]<|tools_suffix|>
#include "text/dialects/call_writer.h"
#include "text/dialects/calls_reader.h"

namespace weir {
namespace {

constexpr std::string_view kOpens[] = {"<|tools_prefix|>"};
constexpr std::string_view kCloses[] = {"<|tools_suffix|>"};
constexpr std::string_view kMarkers[] = {"<|tools_prefix|>", "<|tools_suffix|>"};

int Fits(std::string_view jinja) { return jinja.find("<|tools_prefix|>") == jinja.npos ? 0 : 20; }

std::unique_ptr<DialectReader> Make(const DialectOptions& options, PartSink& sink) {
  return std::make_unique<CallsReader>(CallsForm{.opens = kOpens, .closes = kCloses, .keyed = true}, options, sink);
}

Result<CallParts> Write(CallWriter& writer) {
  const auto gap = writer.Space();
  const auto call = writer.EachTool([&](const CallWriter::Tool& tool) -> Result<FormBuilder::Part> {
    WEIR_ASSIGN_OR_RETURN(const auto arguments, writer.Arguments(tool));
    return writer.Sequence(
        {writer.Text("{"), gap, writer.Text("\"" + tool.name + "\":"), gap, arguments, gap, writer.Text("}")});
  });
  WEIR_RETURN_IF_ERROR(call.status());
  return writer.Between(kOpens, writer.Sequence({gap, writer.List(*call), gap, writer.Marker(kCloses[0])}),
                        {.many = false});
}

}  // namespace

extern const DialectInfo kApertusDialect;
const DialectInfo kApertusDialect = {
    .name = "apertus",
    .summary = "<|tools_prefix|> before a list of {NAME: {...}}",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
    .write = Write,
};

}  // namespace weir
