// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// Gemma 2 and 3 have no form of their own; Google's guide asks for Python in a block of code.
//
//     ```tool_code
//     f(a=1)
//     ```
#include "text/dialects/block_reader.h"

namespace weir {
namespace {

constexpr std::string_view kOpens[] = {"```tool_code"};
constexpr std::string_view kCloses[] = {"```"};
constexpr std::string_view kMarkers[] = {"```tool_code"};

int Fits(std::string_view jinja) {
  const auto has = [&](std::string_view text) { return jinja.find(text) != jinja.npos; };
  return has("tool_code") ? 15 : 0;
}

std::unique_ptr<DialectReader> Make(const DialectOptions& options, PartSink& sink) {
  return std::make_unique<BlockReader>(BlockForm{.opens = kOpens, .closes = kCloses, .understand = UnderstandPython},
                                       options, sink);
}

Result<CallParts> Write(CallWriter& writer) {
  WEIR_ASSIGN_OR_RETURN(const auto call,
                        writer.EachTool([&](const CallWriter::Tool& tool) { return WritePythonCall(writer, tool); }));
  const auto line = writer.OneOf({call, writer.Sequence({writer.Text("print("), call, writer.Text(")")})});
  const auto lines = writer.Sequence({writer.Text("\n"), writer.Several(line, writer.Text("\n")), writer.Text("\n")});
  return writer.Between(kOpens, writer.Sequence({lines, writer.Marker(kCloses[0])}), {.many = false});
}

}  // namespace

extern const DialectInfo kGemmaDialect;
const DialectInfo kGemmaDialect = {
    .name = "gemma",
    .summary = "Python calls in a block ```tool_code",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
    .write = Write,
};

}  // namespace weir
