// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// Nemotron Nano 2 and Apriel: a list of objects between two tags.
//
//     <TOOLCALL>[{"name": "f", "arguments": {"a": 1}}]</TOOLCALL>
#include "text/dialects/call_writer.h"
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

Result<CallParts> Write(CallWriter& writer) {
  WEIR_ASSIGN_OR_RETURN(const auto call, writer.Objects({}));
  const auto list = writer.List(call), gap = writer.Space();
  CallParts out;
  for (size_t i = 0; i < std::size(kOpens); ++i) {
    const auto rest = writer.Sequence({gap, list, gap, writer.Marker(kCloses[i])});
    const CallParts one = writer.Between({&kOpens[i], 1}, rest, {.many = false});
    out.starts.insert(out.starts.end(), one.starts.begin(), one.starts.end());
    out.calls = i == 0 ? one.calls : writer.OneOf({out.calls, one.calls});
  }
  return out;
}

}  // namespace

extern const DialectInfo kNemotronDialect;
const DialectInfo kNemotronDialect = {
    .name = "nemotron",
    .summary = "a list of objects between <TOOLCALL> or <tool_calls> and its end",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
    .write = Write,
};

}  // namespace weir
