// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// FunctionGemma: a notation with braces; texts stand between two marks.
//
//     <start_function_call>call:f{a:1,b:<escape>x<escape>}<end_function_call>
#include "text/dialects/block_reader.h"

namespace weir {
namespace {

constexpr std::string_view kOpens[] = {"<start_function_call>"};
constexpr std::string_view kCloses[] = {"<end_function_call>"};

constexpr std::string_view kQuote = "<escape>";

std::vector<NotedCall> Understand(std::string_view block) { return UnderstandBraces(block, kQuote); }

constexpr std::string_view kMarkers[] = {"<start_function_call>", "<end_function_call>", "<escape>"};

int Fits(std::string_view jinja) {
  const auto has = [&](std::string_view text) { return jinja.find(text) != jinja.npos; };
  return has("<start_function_call>") ? 25 : 0;
}

std::unique_ptr<DialectReader> Make(const DialectOptions& options, PartSink& sink) {
  return std::make_unique<BlockReader>(BlockForm{.opens = kOpens, .closes = kCloses, .understand = Understand}, options,
                                       sink);
}

Result<CallParts> Write(CallWriter& writer) { return WriteBraces(writer, kOpens, kCloses[0], kQuote); }

}  // namespace

extern const DialectInfo kFunctionGemmaDialect;
const DialectInfo kFunctionGemmaDialect = {
    .name = "function_gemma",
    .summary = "<start_function_call>call:NAME{...}<end_function_call>",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
    .write = Write,
};

}  // namespace weir
