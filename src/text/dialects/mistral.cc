// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// Mistral, in all layouts: a list of objects behind the marker, or for each call the marker, a name and the arguments.
//
//     [TOOL_CALLS][{"name": "f", "arguments": {"a": 1}, "id": "abcdefghi"}]
//     [TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}
//
// Templates refuse ids that have not nine letters and digits.
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

}  // namespace

extern const DialectInfo kMistralDialect;
const DialectInfo kMistralDialect = {
    .name = "mistral",
    .summary = "[TOOL_CALLS] before a list of objects, or before NAME[ARGS]{...}",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
    .short_ids = true,
};

}  // namespace weir
