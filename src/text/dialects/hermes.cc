// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// Hermes 2 and 3, Qwen2.5, Qwen3, QwQ, Granite 4, SmolLM3 and many others: each call is an object between two tags.
//
//     <tool_call>
//     {"name": "f", "arguments": {"a": 1}}
//     </tool_call>
#include "text/dialects/call_writer.h"
#include "text/dialects/calls_reader.h"

namespace weir {
namespace {

constexpr std::string_view kOpens[] = {"<tool_call>"}, kCloses[] = {"</tool_call>"};
constexpr std::string_view kMarkers[] = {"<tool_call>", "</tool_call>"};

int Fits(std::string_view jinja) {
  if (jinja.find("]<]minimax[>[") != jinja.npos) return 0;  // MiniMax-M3 writes the tag and means something else
  return jinja.find("<tool_call>") == jinja.npos ? 0 : 10;
}

std::unique_ptr<DialectReader> Make(const DialectOptions& options, PartSink& sink) {
  return std::make_unique<CallsReader>(CallsForm{.opens = kOpens, .closes = kCloses}, options, sink);
}

Result<CallParts> Write(CallWriter& writer) {
  WEIR_ASSIGN_OR_RETURN(const auto call, writer.Objects({}));
  return writer.Between(kOpens, writer.Sequence({writer.Space(), call, writer.Space(), writer.Marker(kCloses[0])}), {});
}

}  // namespace

extern const DialectInfo kHermesDialect;
const DialectInfo kHermesDialect = {
    .name = "hermes",
    .summary = "an object between <tool_call> and </tool_call>",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
    .write = Write,
};

}  // namespace weir
