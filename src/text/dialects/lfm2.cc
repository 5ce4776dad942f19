// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// LFM2: a list of Python calls between two markers.
//
//     <|tool_call_start|>[f(a=1), g(b="x")]<|tool_call_end|>
#include "text/dialects/block_reader.h"

namespace weir {
namespace {

constexpr std::string_view kOpens[] = {"<|tool_call_start|>"};
constexpr std::string_view kCloses[] = {"<|tool_call_end|>"};
constexpr std::string_view kMarkers[] = {"<|tool_call_start|>", "<|tool_call_end|>"};

int Fits(std::string_view jinja) {
  const auto has = [&](std::string_view text) { return jinja.find(text) != jinja.npos; };
  return has("<|tool_call_start|>") ? 20 : 0;
}

std::unique_ptr<DialectReader> Make(const DialectOptions& options, PartSink& sink) {
  return std::make_unique<BlockReader>(BlockForm{.opens = kOpens, .closes = kCloses, .understand = UnderstandPython},
                                       options, sink);
}

Result<CallParts> Write(CallWriter& writer) {
  WEIR_ASSIGN_OR_RETURN(const auto call,
                        writer.EachTool([&](const CallWriter::Tool& tool) { return WritePythonCall(writer, tool); }));
  return writer.Between(kOpens, writer.Sequence({writer.List(call), writer.Marker(kCloses[0])}), {.many = false});
}

}  // namespace

extern const DialectInfo kLfm2Dialect;
const DialectInfo kLfm2Dialect = {
    .name = "lfm2",
    .summary = "a list of Python calls between <|tool_call_start|> and its end",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
    .write = Write,
};

}  // namespace weir
