// weir-plugin: dialect
// SPDX-License-Identifier: Apache-2.0
// Gemma 4: a notation with braces; texts stand between two marks.
//
//     <|tool_call>call:f{a:1,b:<|"|>x<|"|>}<tool_call|>
#include "text/dialects/block_reader.h"

namespace weir {
namespace {

constexpr std::string_view kOpens[] = {"<|tool_call>"};
constexpr std::string_view kCloses[] = {"<tool_call|>"};

constexpr std::string_view kQuote = "<|\"|>";

std::vector<NotedCall> Understand(std::string_view block) { return UnderstandBraces(block, kQuote); }

constexpr std::string_view kMarkers[] = {"<|tool_call>", "<tool_call|>", "<|\"|>"};

int Fits(std::string_view jinja) {
  const auto has = [&](std::string_view text) { return jinja.find(text) != jinja.npos; };
  return has("<|tool_call>") && has("<tool_call|>") ? 25 : 0;
}

std::unique_ptr<DialectReader> Make(const DialectOptions& options, PartSink& sink) {
  return std::make_unique<BlockReader>(BlockForm{.opens = kOpens, .closes = kCloses, .understand = Understand}, options,
                                       sink);
}

Result<CallParts> Write(CallWriter& writer) { return WriteBraces(writer, kOpens, kCloses[0], kQuote); }

}  // namespace

extern const DialectInfo kGemma4Dialect;
const DialectInfo kGemma4Dialect = {
    .name = "gemma4",
    .summary = "<|tool_call>call:NAME{...}<tool_call|>",
    .fits = Fits,
    .markers = kMarkers,
    .make = Make,
    .write = Write,
};

}  // namespace weir
