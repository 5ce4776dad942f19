// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// DeepSeek V3.2 and V4: tags that say of each value whether it is a text.
//
//     <｜DSML｜function_calls>
//     <｜DSML｜invoke name="f">
//     <｜DSML｜parameter name="a" string="false">1</｜DSML｜parameter>
//     </｜DSML｜invoke>
//     </｜DSML｜function_calls>
#include "text/dialects/tagged_reader.h"

namespace weir {
namespace {

constexpr std::string_view kOpens[] = {"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"};
constexpr std::string_view kCloses[] = {"</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"};
constexpr std::string_view kMarkers[] = {"｜DSML｜"};

constexpr TaggedForm kForm = {
    .opens = kOpens,
    .closes = kCloses,
    .call = "<｜DSML｜invoke name=\"",
    .name_end = ">",
    .parameter = "<｜DSML｜parameter name=\"",
    .key_end = ">",
    .value_end = "</｜DSML｜parameter>",
    .close = "</｜DSML｜invoke>",
    .shared = true,
    .says_text = true,
};

int Fits(std::string_view jinja) {
  const auto has = [&](std::string_view text) { return jinja.find(text) != jinja.npos; };
  return has("｜DSML｜") ? 30 : 0;
}

std::unique_ptr<DialectReader> Make(const DialectOptions& options, PartSink& sink) {
  return std::make_unique<TaggedReader>(kForm, options, sink);
}

Result<CallParts> Write(CallWriter& writer) { return WriteTagged(kForm, writer); }

}  // namespace

extern const DialectInfo kDeepseekDsmlDialect;
const DialectInfo kDeepseekDsmlDialect = {
    .name = "deepseek_dsml",
    .summary = "<｜DSML｜invoke name=NAME> with a parameter tag for each argument",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
    .write = Write,
};

}  // namespace weir
