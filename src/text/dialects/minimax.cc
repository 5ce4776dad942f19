// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// MiniMax-M2: tags with quoted names.
//
//     <minimax:tool_call>
//     <invoke name="f">
//     <parameter name="a">1</parameter>
//     </invoke>
//     </minimax:tool_call>
#include "text/dialects/tagged_reader.h"

namespace weir {
namespace {

constexpr std::string_view kOpens[] = {"<minimax:tool_call>"};
constexpr std::string_view kCloses[] = {"</minimax:tool_call>"};
constexpr std::string_view kMarkers[] = {"<minimax:tool_call>", "</minimax:tool_call>"};

constexpr TaggedForm kForm = {
    .opens = kOpens,
    .closes = kCloses,
    .call = "<invoke name=\"",
    .name_end = ">",
    .parameter = "<parameter name=\"",
    .key_end = ">",
    .value_end = "</parameter>",
    .close = "</invoke>",
    .shared = true,
};

int Fits(std::string_view jinja) {
  const auto has = [&](std::string_view text) { return jinja.find(text) != jinja.npos; };
  return has("<minimax:tool_call>") && has("<invoke name=") ? 20 : 0;
}

std::unique_ptr<DialectReader> Make(const DialectOptions& options, PartSink& sink) {
  return std::make_unique<TaggedReader>(kForm, options, sink);
}

Result<CallParts> Write(CallWriter& writer) { return WriteTagged(kForm, writer); }

}  // namespace

extern const DialectInfo kMinimaxDialect;
const DialectInfo kMinimaxDialect = {
    .name = "minimax",
    .summary = "<invoke name=NAME> with a <parameter name=KEY> for each argument",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
    .write = Write,
};

}  // namespace weir
