// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// Kimi K2: calls between markers, each with an id that says the tool's name, and how many calls came before it.
//
//     <|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>
//     <|tool_calls_section_end|>
#include "text/dialects/call_writer.h"
#include "text/dialects/calls_reader.h"

namespace weir {
namespace {

constexpr std::string_view kOpens[] = {"<|tool_call_begin|>"};
constexpr std::string_view kCloses[] = {"<|tool_call_end|>"};
constexpr std::string_view kDropped[] = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"};
constexpr std::string_view kNameEnds[] = {"<|tool_call_argument_begin|>"};
constexpr std::string_view kMarkers[] = {"<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_calls_section_begin|>",
                                         "<|tool_calls_section_end|>", "<|tool_call_argument_begin|>"};

int Fits(std::string_view jinja) { return jinja.find("<|tool_call_argument_begin|>") == jinja.npos ? 0 : 20; }

std::unique_ptr<DialectReader> Make(const DialectOptions& options, PartSink& sink) {
  return std::make_unique<CallsReader>(
      CallsForm{.opens = kOpens, .closes = kCloses, .dropped = kDropped, .name_ends = kNameEnds, .numbered = true},
      options, sink);
}

Result<CallParts> Write(CallWriter& writer) {
  WEIR_ASSIGN_OR_RETURN(const auto number, writer.builder().Regex("[0-9]{1,4}"));
  const auto end = writer.Marker(kNameEnds[0]), close = writer.Marker(kCloses[0]);
  const auto named = writer.EachTool([&](const CallWriter::Tool& tool) -> Result<FormBuilder::Part> {
    WEIR_ASSIGN_OR_RETURN(const auto arguments, writer.Arguments(tool));
    return writer.Sequence(
        {writer.Text("functions." + tool.name + ":"), number, end, writer.Space(), arguments, writer.Space(), close});
  });
  WEIR_RETURN_IF_ERROR(named.status());
  return writer.Bracketed(kDropped[0], kOpens[0], *named, kDropped[1]);
}

}  // namespace

extern const DialectInfo kKimiDialect;
const DialectInfo kKimiDialect = {
    .name = "kimi",
    .summary = "<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{...}<|tool_call_end|>",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
    .write = Write,
};

}  // namespace weir
