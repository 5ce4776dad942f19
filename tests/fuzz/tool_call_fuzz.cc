// SPDX-License-Identifier: Apache-2.0
// Any text as an answer in any dialect: the same parts however it is cut, no text lost without thoughts and calls, and
// arguments only after a call.
//
// Input: one byte for the dialect, one for options, one for the size of pieces, then the text.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer_reader.h"
#include "text/tool_table.h"

namespace {

const std::shared_ptr<const weir::ToolTable>& Tools() {
  static const auto tools = std::make_shared<const weir::ToolTable>(
      weir::Json::parse(R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":
        {"a":{"type":"integer"},"s":{"type":"string"}}}}}])"));
  return tools;
}

struct Read {
  std::string content, reasoning, calls;
  bool operator==(const Read&) const = default;
};

Read ReadIn(const weir::AnswerForm& form, const weir::ReadingOptions& options, std::string_view text, size_t piece) {
  weir::AnswerReader reader(form, options);
  Read out;
  int n_calls = 0;
  const auto take = [&] {
    for (const weir::AnswerPart& part : reader.Take()) {
      switch (part.kind) {
        case weir::AnswerPart::Kind::kContent:
          out.content += part.text;
          break;
        case weir::AnswerPart::Kind::kReasoning:
          out.reasoning += part.text;
          break;
        case weir::AnswerPart::Kind::kCall:
          if (part.text.empty() || part.id.empty()) std::abort();
          out.calls += "\x01" + part.text + "\x02";
          ++n_calls;
          break;
        case weir::AnswerPart::Kind::kArguments:
          if (n_calls == 0) std::abort();
          out.calls += part.text;
      }
    }
  };
  for (size_t at = 0; at < text.size(); at += piece) {
    reader.Push(text.substr(at, piece));
    take();
  }
  reader.Finish();
  take();
  if (n_calls != reader.n_calls()) std::abort();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const auto dialects = weir::AllDialectInfos();
  const weir::DialectInfo& dialect = *dialects[data[0] % dialects.size()];
  const weir::ThoughtMarks marks = dialect.thoughts ? weir::ThoughtMarks{} : weir::ThoughtMarks{"<think>", "</think>"};
  const weir::AnswerForm form(dialect, marks);
  weir::ReadingOptions options;
  if (data[1] & 1) options.tools = Tools();
  options.parallel = data[1] & 2;
  options.thoughts_apart = data[1] & 4;
  options.in_thoughts = (data[1] & 8) && !dialect.thoughts;
  options.held = data[1] & 16;
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  const Read whole = ReadIn(form, options, text, size);
  if (!(ReadIn(form, options, text, 1 + data[2] % 16) == whole)) std::abort();
  if (!(ReadIn(form, options, text, 1) == whole)) std::abort();
  // Without thoughts and calls nothing is lost.
  if (options.tools == nullptr && !dialect.thoughts && !options.in_thoughts && whole.reasoning.empty() &&
      text.find("</think>") == text.npos && whole.content != text && text.find("<think>") == text.npos) {
    std::abort();
  }
  return 0;
}
