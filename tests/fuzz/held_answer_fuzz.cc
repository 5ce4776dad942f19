// SPDX-License-Identifier: Apache-2.0
// Any schema as a tool's, in any dialect: a form or one line that says why not, within bounds; and what is written
// under the form is read back as calls of the tool whose arguments are objects.
//
// Input: one byte for the dialect, one for options, then the schema.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "form_walker.h"
#include "text/held_answer.h"
#include "text/tool_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  auto schema = weir::ParseJsonObject({reinterpret_cast<const char*>(data) + 2, size - 2});
  if (!schema.ok()) return 0;
  const auto dialects = weir::AllDialectInfos();
  const weir::DialectInfo& dialect = *dialects[data[0] % dialects.size()];
  const weir::AnswerForm reading(dialect, {});
  weir::HeldAnswer held;
  held.tools.push_back({{"type", "function"}, {"function", {{"name", "f"}, {"parameters", *schema}}}});
  held.must = data[1] & 1;
  held.parallel = data[1] & 2;
  if (data[1] & 4) held.strict = {"f"};
  const auto form = weir::MakeForm(held, reading, weir::FuzzVocab());
  if (!form.ok()) {
    weir::CheckOneLine(form.status());
    return 0;
  }
  uint64_t seed = size;
  for (size_t i = 0; i < size; ++i) seed = seed * 31 + data[i];
  const std::string text = weir::WalkForm(*form, seed, 400);
  if (text.empty() || weir::ValidUtf8Prefix(text) != text.size()) return 0;
  weir::ReadingOptions options;
  options.tools = std::make_shared<const weir::ToolTable>(held.tools);
  options.parallel = held.parallel;
  options.held = true;
  weir::AnswerReader reader(reading, options);
  reader.Push(text);
  reader.Finish();
  if (held.must && reader.n_calls() == 0) std::abort();
  std::string arguments;
  const auto check = [&] {
    if (!arguments.empty() && !weir::Json::parse(arguments, nullptr, false).is_object()) std::abort();
    arguments.clear();
  };
  for (const weir::AnswerPart& part : reader.Take()) {
    if (part.kind == weir::AnswerPart::Kind::kCall && part.text != "f") std::abort();
    if (part.kind == weir::AnswerPart::Kind::kCall) check();
    if (part.kind == weir::AnswerPart::Kind::kArguments) arguments += part.text;
  }
  check();
  return 0;
}
