// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// DeepSeek V2.5, V3, V3.1 and R1, with its distilled models: each call between two markers, all calls between two more.
//
//     <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f
//     ```json
//     {"a": 1}
//     ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
//
// V3.1 writes <｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜>.
#include "text/dialects/call_writer.h"
#include "text/dialects/calls_reader.h"

namespace weir {
namespace {

constexpr std::string_view kOpens[] = {"<｜tool▁call▁begin｜>"};
constexpr std::string_view kCloses[] = {"```<｜tool▁call▁end｜>", "<｜tool▁call▁end｜>"};
constexpr std::string_view kDropped[] = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"};
constexpr std::string_view kNameEnds[] = {"<｜tool▁sep｜>", "```json"};
constexpr std::string_view kMarkers[] = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
                                         "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"};

int Fits(std::string_view jinja) {
  const auto has = [&](std::string_view text) { return jinja.find(text) != jinja.npos; };
  return has("<｜tool▁call▁begin｜>") ? 20 : 0;
}

std::unique_ptr<DialectReader> Make(const DialectOptions& options, PartSink& sink) {
  return std::make_unique<CallsReader>(
      CallsForm{.opens = kOpens, .closes = kCloses, .dropped = kDropped, .name_ends = kNameEnds}, options, sink);
}

Result<CallParts> Write(CallWriter& writer) {
  const auto separator = writer.Marker(kNameEnds[0]), close = writer.Marker(kCloses[1]);
  const auto rest = writer.EachTool([&](const CallWriter::Tool& tool) -> Result<FormBuilder::Part> {
    WEIR_ASSIGN_OR_RETURN(const auto arguments, writer.Arguments(tool));
    const auto name = writer.Text(tool.name);
    return writer.OneOf({writer.Sequence({name, separator, arguments}),
                         writer.Sequence({writer.Text("function"), separator, name, writer.Text("\n```json\n"),
                                          arguments, writer.Text("\n```")})});
  });
  WEIR_RETURN_IF_ERROR(rest.status());
  const auto named = writer.Sequence({*rest, close});
  return writer.Bracketed(kDropped[0], kOpens[0], named, kDropped[1]);
}

}  // namespace

extern const DialectInfo kDeepseekDialect;
const DialectInfo kDeepseekDialect = {
    .name = "deepseek",
    .summary = "<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}<｜tool▁call▁end｜>",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
    .write = Write,
};

}  // namespace weir
