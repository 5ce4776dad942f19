// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// Phi-4-mini and Granite 3: a list of objects behind a marker.
//
//     <|tool_call|>[{"name": "f", "arguments": {"a": 1}}]<|/tool_call|>
#include "text/dialects/call_writer.h"
#include "text/dialects/calls_reader.h"

namespace weir {
namespace {

constexpr std::string_view kOpens[] = {"<|tool_call|>", "<|tool_calls|>"};
constexpr std::string_view kCloses[] = {"<|/tool_call|>", "<|/tool_calls|>"};
constexpr std::string_view kMarkers[] = {"<|tool_call|>", "<|/tool_call|>", "<|tool_calls|>", "<|/tool_calls|>"};

int Fits(std::string_view jinja) {
  const auto has = [&](std::string_view text) { return jinja.find(text) != jinja.npos; };
  return has("<|tool_call|>") && !has("<|tool_call>") ? 9 : 0;
}

std::unique_ptr<DialectReader> Make(const DialectOptions& options, PartSink& sink) {
  return std::make_unique<CallsReader>(CallsForm{.opens = kOpens, .closes = kCloses}, options, sink);
}

// Granite's models write no end.
Result<CallParts> Write(CallWriter& writer) {
  WEIR_ASSIGN_OR_RETURN(const auto call, writer.Objects({}));
  const auto list = writer.List(call), gap = writer.Space();
  CallParts out;
  for (size_t i = 0; i < std::size(kOpens); ++i) {
    const auto close = writer.Maybe(writer.Sequence({gap, writer.Marker(kCloses[i])}));
    const CallParts one =
        writer.Between({&kOpens[i], 1}, writer.Sequence({gap, list, close}), {.many = false, .last = true});
    out.starts.insert(out.starts.end(), one.starts.begin(), one.starts.end());
    if (i == 0) out.calls = one.calls;
  }
  return out;
}

}  // namespace

extern const DialectInfo kPhi4MiniDialect;
const DialectInfo kPhi4MiniDialect = {
    .name = "phi4_mini",
    .summary = "<|tool_call|> before a list of objects",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
    .write = Write,
};

}  // namespace weir
