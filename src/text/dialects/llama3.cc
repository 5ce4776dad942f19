// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// Llama 3.1, 3.2 and 3.3: the whole answer is an object. Before it may stand <|python_tag|>; some write
// <function=f>{"a": 1}</function>, as Functionary 3.1 does.
//
//     {"name": "f", "parameters": {"a": 1}}
#include "text/dialects/call_writer.h"
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

Result<CallParts> Write(CallWriter& writer) {
  const CallWriter::Keys keys = {.arguments = {"parameters", "arguments"}};
  WEIR_ASSIGN_OR_RETURN(const auto object, writer.Objects(keys));
  const auto between = writer.Sequence({writer.Text(";"), writer.Space()});
  const auto objects = writer.Several(object, between);
  CallParts out = writer.Between({&kOpens[0], 1}, writer.Sequence({writer.Space(), objects}), {.last = true});
  out.calls = objects;
  const auto tagged = writer.EachTool([&](const CallWriter::Tool& tool) -> Result<FormBuilder::Part> {
    WEIR_ASSIGN_OR_RETURN(const auto arguments, writer.Arguments(tool));
    return writer.Sequence({writer.Text(tool.name), writer.Marker(kNameEnds[0]), arguments, writer.Marker(kCloses[0])});
  });
  WEIR_RETURN_IF_ERROR(tagged.status());
  const CallParts more = writer.Between({&kOpens[1], 1}, *tagged, {});
  out.starts.insert(out.starts.end(), more.starts.begin(), more.starts.end());
  WEIR_RETURN_IF_ERROR(writer.AddBare(keys, ";", &out));
  return out;
}

}  // namespace

extern const DialectInfo kLlama3Dialect;
const DialectInfo kLlama3Dialect = {
    .name = "llama3",
    .summary = "an object that is the answer, or <function=NAME>{...}</function>",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
    .write = Write,
};

}  // namespace weir
