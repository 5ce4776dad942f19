// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// Mistral, in all layouts: a list of objects behind the marker, or for each call the marker, a name and the arguments.
//
//     [TOOL_CALLS][{"name": "f", "arguments": {"a": 1}, "id": "abcdefghi"}]
//     [TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}
//
// Templates refuse ids that have not nine letters and digits.
#include "text/dialects/call_writer.h"
#include "text/dialects/calls_reader.h"

namespace weir {
namespace {

constexpr std::string_view kOpens[] = {"[TOOL_CALLS]"};
constexpr std::string_view kNameEnds[] = {"[ARGS]"};
constexpr std::string_view kMarkers[] = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"};

int Fits(std::string_view jinja) {
  const auto has = [&](std::string_view text) { return jinja.find(text) != jinja.npos; };
  return has("[TOOL_CALLS]") ? 20 : 0;
}

std::unique_ptr<DialectReader> Make(const DialectOptions& options, PartSink& sink) {
  return std::make_unique<CallsReader>(CallsForm{.opens = kOpens, .name_ends = kNameEnds, .id_begins = "[CALL_ID]"},
                                       options, sink);
}

// A list of objects (Nemo, Small 3.1), or a name and its arguments for each call (Small 3.2, Magistral, Devstral).
Result<CallParts> Write(CallWriter& writer) {
  WEIR_ASSIGN_OR_RETURN(const auto object, writer.Objects({}));
  WEIR_ASSIGN_OR_RETURN(const auto id, writer.builder().Regex("[A-Za-z0-9]{9}"));
  const auto with_id = writer.Maybe(writer.Sequence({writer.Marker("[CALL_ID]"), id}));
  const auto named = writer.EachTool([&](const CallWriter::Tool& tool) -> Result<FormBuilder::Part> {
    WEIR_ASSIGN_OR_RETURN(const auto arguments, writer.Arguments(tool));
    return writer.Sequence({writer.Text(tool.name), with_id, writer.Marker(kNameEnds[0]), writer.Space(), arguments});
  });
  WEIR_RETURN_IF_ERROR(named.status());
  const auto list = writer.Sequence({writer.Space(), writer.List(object)});
  const auto calls = writer.Several(*named, writer.Marker(kOpens[0]));
  return writer.Between(kOpens, writer.OneOf({list, calls}), {.many = false, .last = true});
}

}  // namespace

extern const DialectInfo kMistralDialect;
const DialectInfo kMistralDialect = {
    .name = "mistral",
    .summary = "[TOOL_CALLS] before a list of objects, or before NAME[ARGS]{...}",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
    .write = Write,
    .short_ids = true,
};

}  // namespace weir
