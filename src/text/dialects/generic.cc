// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// Models whose template has no place for tools: the system text describes them and asks for Hermes' form
// (text/tool_prompt.h). What models make of it is read too: a list between the tags, or a bare object.
#include "text/dialects/call_writer.h"
#include "text/dialects/calls_reader.h"

namespace weir {
namespace {

constexpr std::string_view kOpens[] = {"<tool_call>"}, kCloses[] = {"</tool_call>"};
constexpr std::string_view kMarkers[] = {"<tool_call>", "</tool_call>"};

int Fits(std::string_view) { return 1; }

std::unique_ptr<DialectReader> Make(const DialectOptions& options, PartSink& sink) {
  return std::make_unique<CallsReader>(CallsForm{.opens = kOpens, .closes = kCloses, .bare = true}, options, sink);
}

Result<CallParts> Write(CallWriter& writer) {
  WEIR_ASSIGN_OR_RETURN(const auto call, writer.Objects({}));
  const auto rest = writer.Sequence({writer.Space(), call, writer.Space(), writer.Marker(kCloses[0])});
  CallParts out = writer.Between(kOpens, rest, {});
  WEIR_RETURN_IF_ERROR(writer.AddBare({}, ",", &out));
  return out;
}

}  // namespace

extern const DialectInfo kGenericDialect;
const DialectInfo kGenericDialect = {
    .name = "generic",
    .summary = "a system text describes the tools; an object, between <tool_call> and </tool_call> or alone",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
    .write = Write,
};

}  // namespace weir
