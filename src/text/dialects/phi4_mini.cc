// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// Phi-4-mini and Granite 3: a list of objects behind a marker.
//
//     <|tool_call|>[{"name": "f", "arguments": {"a": 1}}]<|/tool_call|>
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

}  // namespace

extern const DialectInfo kPhi4MiniDialect;
const DialectInfo kPhi4MiniDialect = {
    .name = "phi4_mini",
    .summary = "<|tool_call|> before a list of objects",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
};

}  // namespace weir
