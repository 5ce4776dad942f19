// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// Nemotron Nano 2 and Apriel: a list of objects between two tags.
//
//     <TOOLCALL>[{"name": "f", "arguments": {"a": 1}}]</TOOLCALL>
#include "text/dialects/calls_reader.h"

namespace weir {
namespace {

constexpr std::string_view kOpens[] = {"<TOOLCALL>", "<tool_calls>"};
constexpr std::string_view kCloses[] = {"</TOOLCALL>", "</tool_calls>"};
constexpr std::string_view kMarkers[] = {"<TOOLCALL>", "</TOOLCALL>", "<tool_calls>", "</tool_calls>"};

int Fits(std::string_view jinja) {
  const auto has = [&](std::string_view text) { return jinja.find(text) != jinja.npos; };
  return has("<TOOLCALL>") || has("<tool_calls>[") ? 12 : has("<tool_calls>") ? 9 : 0;
}

std::unique_ptr<DialectReader> Make(const DialectOptions& options, PartSink& sink) {
  return std::make_unique<CallsReader>(CallsForm{.opens = kOpens, .closes = kCloses}, options, sink);
}

}  // namespace

extern const DialectInfo kNemotronDialect;
const DialectInfo kNemotronDialect = {
    .name = "nemotron",
    .summary = "a list of objects between <TOOLCALL> or <tool_calls> and its end",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
};

}  // namespace weir
