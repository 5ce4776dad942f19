// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// GLM 4.5 to 4.7, Ling 3 and Laguna: a name, and keys and values in turn.
//
//     <tool_call>f
//     <arg_key>a</arg_key>
//     <arg_value>1</arg_value>
//     </tool_call>
#include "text/dialects/tagged_reader.h"

namespace weir {
namespace {

constexpr std::string_view kOpens[] = {"<tool_call>"};
constexpr std::string_view kCloses[] = {"</tool_call>"};
constexpr std::string_view kMarkers[] = {"<tool_call>", "</tool_call>", "<arg_key>",
                                         "</arg_key>",  "<arg_value>",  "</arg_value>"};

constexpr TaggedForm kForm = {
    .opens = kOpens,
    .closes = kCloses,
    .call = "",
    .name_end = "\n",
    .parameter = "<arg_key>",
    .key_end = "</arg_key>",
    .value = "<arg_value>",
    .value_end = "</arg_value>",
};

int Fits(std::string_view jinja) {
  const auto has = [&](std::string_view text) { return jinja.find(text) != jinja.npos; };
  return has("<arg_key>") && has("<arg_value>") ? 20 : 0;
}

std::unique_ptr<DialectReader> Make(const DialectOptions& options, PartSink& sink) {
  return std::make_unique<TaggedReader>(kForm, options, sink);
}

Result<CallParts> Write(CallWriter& writer) { return WriteTagged(kForm, writer); }

}  // namespace

extern const DialectInfo kGlmDialect;
const DialectInfo kGlmDialect = {
    .name = "glm",
    .summary = "<tool_call>NAME with <arg_key> and <arg_value> for each argument",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
    .write = Write,
};

}  // namespace weir
