// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// Command R7B and A: a list of objects between two markers, with names of their own for the fields.
//
//     <|START_ACTION|>[{"tool_call_id": "0", "tool_name": "f", "parameters": {"a": 1}}]<|END_ACTION|>
#include "text/dialects/call_writer.h"
#include "text/dialects/calls_reader.h"

namespace weir {
namespace {

constexpr std::string_view kOpens[] = {"<|START_ACTION|>"};
constexpr std::string_view kCloses[] = {"<|END_ACTION|>"};
constexpr std::string_view kDropped[] = {"<|START_RESPONSE|>", "<|END_RESPONSE|>"};
constexpr std::string_view kMarkers[] = {"<|START_ACTION|>", "<|END_ACTION|>", "<|START_RESPONSE|>",
                                         "<|END_RESPONSE|>"};

int Fits(std::string_view jinja) {
  const auto has = [&](std::string_view text) { return jinja.find(text) != jinja.npos; };
  return has("<|START_ACTION|>") ? 20 : 0;
}

std::unique_ptr<DialectReader> Make(const DialectOptions& options, PartSink& sink) {
  return std::make_unique<CallsReader>(CallsForm{.opens = kOpens, .closes = kCloses, .dropped = kDropped}, options,
                                       sink);
}

Result<CallParts> Write(CallWriter& writer) {
  const CallWriter::Keys keys = {.name = "tool_name", .arguments = {"parameters"}, .id = "tool_call_id"};
  WEIR_ASSIGN_OR_RETURN(const auto call, writer.Objects(keys));
  const auto gap = writer.Space();
  return writer.Between(kOpens, writer.Sequence({gap, writer.List(call), gap, writer.Marker(kCloses[0])}),
                        {.many = false});
}

}  // namespace

extern const DialectInfo kCommandRDialect;
const DialectInfo kCommandRDialect = {
    .name = "command_r",
    .summary = "<|START_ACTION|> before a list of objects",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
    .write = Write,
};

}  // namespace weir
