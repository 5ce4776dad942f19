// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// Qwen3-Coder, Qwen3.5, Nemotron 3, Step 3.5 and Seed-OSS: tags with values on lines of their own.
//
//     <tool_call>
//     <function=f>
//     <parameter=a>
//     1
//     </parameter>
//     </function>
//     </tool_call>
#include "text/dialects/tagged_reader.h"

namespace weir {
namespace {

constexpr std::string_view kOpens[] = {"<tool_call>", "<seed:tool_call>"};
constexpr std::string_view kCloses[] = {"</tool_call>", "</seed:tool_call>"};
constexpr std::string_view kMarkers[] = {"<tool_call>", "</tool_call>", "<seed:tool_call>", "</seed:tool_call>"};

constexpr TaggedForm kForm = {
    .opens = kOpens,
    .closes = kCloses,
    .call = "<function=",
    .name_end = ">",
    .parameter = "<parameter=",
    .key_end = ">",
    .value_end = "</parameter>",
    .close = "</function>",
    .lines = true,
};

int Fits(std::string_view jinja) {
  const auto has = [&](std::string_view text) { return jinja.find(text) != jinja.npos; };
  return has("<function=") && has("<parameter=") ? 20 : 0;
}

std::unique_ptr<DialectReader> Make(const DialectOptions& options, PartSink& sink) {
  return std::make_unique<TaggedReader>(kForm, options, sink);
}

Result<CallParts> Write(CallWriter& writer) { return WriteTagged(kForm, writer); }

}  // namespace

extern const DialectInfo kQwen3CoderDialect;
const DialectInfo kQwen3CoderDialect = {
    .name = "qwen3_coder",
    .summary = "<function=NAME> with a <parameter=KEY> for each argument",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
    .write = Write,
};

}  // namespace weir
