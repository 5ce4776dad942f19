// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// Llama 3.1, 3.2 and 3.3: the whole answer is an object. Before it may stand <|python_tag|>; some write
// <function=f>{"a": 1}</function>, as Functionary 3.1 does.
//
//     {"name": "f", "parameters": {"a": 1}}
#include "text/dialects/calls_reader.h"

namespace weir {
namespace {

constexpr std::string_view kOpens[] = {"<|python_tag|>", "<function="};
constexpr std::string_view kCloses[] = {"</function>"};
constexpr std::string_view kNameEnds[] = {">"};
constexpr std::string_view kMarkers[] = {"<|python_tag|>"};

int Fits(std::string_view jinja) {
  const auto has = [&](std::string_view text) { return jinja.find(text) != jinja.npos; };
  return has("<|start_header_id|>") && (has("<|python_tag|>") || has("ipython") || has("<function=")) ? 8 : 0;
}

std::unique_ptr<DialectReader> Make(const DialectOptions& options, PartSink& sink) {
  return std::make_unique<CallsReader>(
      CallsForm{.opens = kOpens, .closes = kCloses, .name_ends = kNameEnds, .bare = true}, options, sink);
}

}  // namespace

extern const DialectInfo kLlama3Dialect;
const DialectInfo kLlama3Dialect = {
    .name = "llama3",
    .summary = "an object that is the answer, or <function=NAME>{...}</function>",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
};

}  // namespace weir
